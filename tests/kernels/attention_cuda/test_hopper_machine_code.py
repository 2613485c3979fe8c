"""What hopper.cu became: bulk copies, products of warpgroups, and nothing in their way."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mlbackends_kernels.attention_flash as kernels
from mlbackends_kernels.attention_flash import cubins, hopper

SOURCE = Path(kernels.__path__[0]) / "hopper.cu"
MOST_SPILLED = {("hopper_both", 128): 64}
"""Bytes of a thread; no other kernel spills."""
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
