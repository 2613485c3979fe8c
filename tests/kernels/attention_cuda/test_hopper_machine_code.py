"""What hopper.cu became: bulk copies, products of warpgroups, and nothing in their way."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mlbackends_kernels.attention_flash as kernels
from mlbackends_kernels.attention_flash import cubins, hopper

SOURCE = Path(kernels.__path__[0]) / "hopper.cu"
#: Bytes of a thread; no other kernel spills.
MOST_SPILLED = {("hopper_both", 128): 64}
EACH = [(dtype, width) for width in hopper.WIDTHS for dtype in ("float16", "bfloat16")]


def products(kernel: str, tile: hopper.Tile) -> int:
    """Return how many wgmma the products of a kernel take: those of the first tile apart."""
    scores, sums = tile.width // 16, tile.columns // 16
    return 2 * scores + (sums if kernel == "hopper_query" else 2 * sums)


@pytest.mark.parametrize(("dtype", "width"), EACH)
def test_sums_stay_in_registers(dtype: str, width: int) -> None:
    record = cubins.records()[cubins.unit(hopper.TARGET, dtype, width)]["kernels"]
    for kernel in hopper.tiles(dtype, width):
        assert record[kernel]["spilled"] <= MOST_SPILLED.get((kernel, width), 0)


def instructions(cubin: bytes, folder: Path) -> dict[str, str]:
    """Return the instructions of each kernel of a cubin."""
    wheels = [
        each for place in sys.path for each in Path(place or ".").glob("nvidia/*/bin/nvdisasm")
    ]
    program = shutil.which("nvdisasm") or (str(wheels[0]) if wheels else "")
    if not program:
        pytest.skip("nvdisasm is not installed: nvidia-cuda-nvdisasm")
    file = folder / "cubin"
    file.write_bytes(cubin)
    done = subprocess.run([program, "-c", file], capture_output=True, text=True, check=True)
    parts = re.split(r"\.section\s+\.text\.(\w+)", done.stdout)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(
    ("dtype", "width"), [("bfloat16", 128), ("float16", 64), ("bfloat16", 256)]
)
def test_copies_and_products_are_those_of_hopper(dtype: str, width: int, tmp_path: Path) -> None:
    found = instructions(cubins.machine_code(cubins.unit(hopper.TARGET, dtype, width)), tmp_path)
    tiles = hopper.tiles(dtype, width)
    assert set(found) == set(tiles)
    for kernel, tile in tiles.items():
        text = found[kernel]
        counts = {word: len(re.findall(rf"\b{word}\b", text)) for word in WANTED}
        assert counts == WANTED | {"HGMMA": products(kernel, tile)}, kernel


#: Products, copies of boxes, changes of registers; products of a warp, and copies by threads.
WANTED = {"HGMMA": 0, "UTMALDG": 3, "USETMAXREG": 2, "HMMA": 0, "LDGSTS": 0, "LDSM": 0}


def test_products_are_not_serialized() -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from mlbackends_kernels.cuda import compiling
    from mlbackends_kernels.cuda.errors import CudaUnavailable

    definitions: Any = hopper.definitions("bfloat16", 128)
    options = ["--gpu-architecture=sm_90a", "--std=c++17", "--ptxas-options=-v"]
    options += [f"-D{name}={value}" for name, value in definitions.items()]
    try:
        _, log = compiling.compiled(SOURCE, options)
    except CudaUnavailable as error:
        if "cannot be called" not in str(error):
            raise
        pytest.skip(f"nvidia-cuda-nvrtc is not installed: {error}")
    assert "spill" in log
    assert not re.search("serializ|C7510|Potential Performance Loss", log)


def numbers(text: str) -> list[int]:
    """Return the registers that a text names."""
    return [int(each) for each in re.findall(r"\bR(\d+)\b", text)]


class Products(NamedTuple):
    """Registers of products under way: those that are added to, and those that are read."""

    sums: frozenset[int] = frozenset()
    read: frozenset[int] = frozenset()

    def __add__(self, other: Any) -> Products:
        return Products(self.sums | other.sums, self.read | other.read)


def touched_in_flight(text: str) -> set[str]:
    """Return the instructions of a kernel that touch registers of a product that is still under way.

    Products come in groups that end with gsb0, and DEPBAR waits until so many groups are left.
    """
    labels: dict[str, int] = {}
    code: list[tuple[bool, str, str]] = []
    for label, condition, name, rest in re.findall(
        r"^(\.L_\w+):|/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ +)?([\w.]+)(.*);", text, re.MULTILINE
    ):
        if label:
            labels[label] = len(code)
        else:
            code.append((bool(condition), name, rest))
    found: set[str] = set()
    seen: set[tuple[Any, ...]] = set()
    paths: list[tuple[int, tuple[Products, ...], Products]] = [(0, (), Products())]
    while paths:
        at, groups, begun = state = paths.pop()
        if state in seen or at == len(code):
            continue
        seen.add(state)
        is_conditional, name, rest = code[at]
        flying = sum(groups, begun)
        if name.startswith("HGMMA"):
            sums, left = (numbers(each) for each in rest.split(",")[:2])
            count = int(name.split("x")[1]) // 2
            own = frozenset(range(sums[0], sums[0] + count))
            if own & flying.sums not in (own, set()) or own & flying.read:
                found.add(name + rest)
            begun += Products(own, frozenset(range(left[0], left[0] + 4) if left else ()))
            if "gsb0" in rest:
                groups, begun = (*groups, begun), Products()
        elif "DEPBAR" in name:
            left_over = int(rest.split()[-1], 16)
            groups = groups[max(len(groups) - left_over, 0) :]
        else:
            wide = 4 if ".128" in name else 2 if ".64" in name or "WIDE" in name else 1
            target = re.match(r" +(?:U?P\w+, )*R(\d+)\b", rest)
            is_store = name.startswith(("ST", "R2UR", "BAR", "SYNCS"))
            first = int(target[1]) if target and not is_store else 0
            written = set(range(first, first + wide)) if first else set()
            if (written | set(numbers(rest))) & flying.sums or written & flying.read:
                found.add(name + rest)
        branch = re.search(r"`\((\.L_\w+)\)", rest) if name.startswith("BRA") else None
        if branch:
            paths.append((labels[branch[1]], groups, begun))
        ends = (branch and not re.search(r"\bU?P\d|DIV", name + rest)) or name == "EXIT"
        if is_conditional or not ends:
            paths.append((at + 1, groups, begun))
    return found


@pytest.mark.parametrize(
    ("dtype", "width"), [("bfloat16", 128), ("float16", 64), ("bfloat16", 256)]
)
def test_registers_of_products_are_left_alone_until_these_are_done(
    dtype: str, width: int, tmp_path: Path
) -> None:
    """The compiler orders what is asynchronous; the emulation on the CPU cannot show how."""
    found = instructions(cubins.machine_code(cubins.unit(hopper.TARGET, dtype, width)), tmp_path)
    for kernel, text in found.items():
        assert not touched_in_flight(text), kernel
        assert touched_in_flight(text.replace("gsb0, 0x0", "gsb0, 0x1")), kernel
