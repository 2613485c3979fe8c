"""What our kernels become for GPUs that are not here: registers, spills, shared memory, tensor cores.

NVRTC compiles them without a driver, and says what it took; nvdisasm tells which instructions came out.
What flash_cuda brings with it has been compiled already, and is compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from mlbackends_kernels.attention_cuda.device import MASK_SOURCE, SOURCE
from mlbackends_kernels.attention_cuda.launches import (
    OF_MASK,
    WIDTHS,
    Tile,
    arithmetic,
    definitions,
    shared_limit,
    tile_of,
)
from mlbackends_kernels.attention_flash import cubins
from mlbackends_kernels.attention_flash import launches as flash
from mlbackends_kernels.cuda import compiling
from mlbackends_kernels.cuda.errors import CudaUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILE = Path(__file__).resolve().parents[3] / "kernels" / "builder" / "cubins.py"
_spec = spec_from_file_location("cubins_builder", _FILE)
assert _spec is not None and _spec.loader is not None
builder = sys.modules[_spec.name] = module_from_spec(_spec)
_spec.loader.exec_module(builder)

#: Bytes of a thread, by the width of rows: of the widest, half of all registers hold sums of one gradient.
MOST_SPILLED = {64: 96, 128: 128, 256: 256}

CHIPS = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0))
#: KiB that a block may have at most. Source: CUDA C++ Programming Guide, compute capabilities.
SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}
DTYPES = ("float16", "bfloat16", "float32")
PASSES = (
    "forward",
    "summarize",
    "differentiate_query",
    "differentiate_key",
    "differentiate_value",
    "differentiate_both",
    "differentiate_mask",
)
COMPILED = [
    *(("forward", "float16", 64, chip) for chip in CHIPS),
    ("forward", "bfloat16", 128, (9, 0)),
    ("forward", "float16", 256, (8, 0)),
    ("forward", "float32", 128, (8, 0)),
    ("forward", "float32", 64, (7, 5)),
    ("differentiate_query", "bfloat16", 128, (8, 0)),
    ("differentiate_both", "float16", 64, (7, 5)),
    ("differentiate_both", "float16", 128, (9, 0)),
    ("differentiate_both", "float32", 64, (9, 0)),
    ("differentiate_key", "float32", 128, (8, 0)),
    ("differentiate_mask", "bfloat16", 64, (8, 0)),
    ("differentiate_mask", "float32", 128, (9, 0)),
    ("differentiate_key", "float16", 256, (8, 0)),
    ("differentiate_value", "float32", 256, (8, 0)),
]


class Found(NamedTuple):
    """What the compiler made. tensor_cores: how many of their instructions; None without nvdisasm."""

    registers: int
    spilled: int
    tensor_cores: int | None


def compiled(function: str, tile: Tile, chip: tuple[int, int], folder: Path) -> Found:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    try:
        options = compiling.options_for(chip, *definitions(function, tile))
        source = MASK_SOURCE if function == OF_MASK else SOURCE
        more = ["--ptxas-options=-v", f"-I{source.parent}"]
        cubin, log = compiling.compiled(source, [*options, *more])
    except CudaUnavailable as error:
        pytest.skip(f"nvidia-cuda-nvrtc is not installed: {error}")
    (registers,) = re.findall(r"Used (\d+) registers", log)
    spilled = [int(each) for each in re.findall(r"(\d+) bytes spill", log)]
    file = folder / "cubin"
    file.write_bytes(cubin)
    count = None
    if disassembler := nvdisasm():
        text = subprocess.run(
            [disassembler, "-c", file], capture_output=True, text=True, check=True
        )
        count = len(re.findall(r"\bHMMA\.", text.stdout))
    return Found(int(registers), max(spilled), count)


def nvdisasm() -> str:
    wheels = [
        each for place in sys.path for each in Path(place or ".").glob("nvidia/*/bin/nvdisasm")
    ]
    return shutil.which("nvdisasm") or (str(wheels[0]) if wheels else "")


def products(function: str, tile: Tile, chip: tuple[int, int]) -> int:
    """Return how many instructions of tensor cores the products of a tile take."""
    if tile.arithmetic.startswith("Full") or function == "summarize":
        return 0
    head, value = tile.head, tile.value
    widths: dict[str, Sequence[int]] = {
        "forward": (head, value),
        "differentiate_query": (head, value, head),
        "differentiate_key": (head, value, head),
        "differentiate_value": (head, value),
        "differentiate_mask": (head, value),
        "differentiate_both": (head, value, value, head),
    }
    depth, each = (8, 3) if tile.arithmetic == "ThreeTF32" else (16 if chip >= (8, 0) else 8, 1)
    along_rows = sum(widths[function]) // depth
    return along_rows * tile.columns // 8 * tile.row_tiles * each


@pytest.mark.parametrize(
    ("function", "dtype", "width", "chip"),
    COMPILED,
    ids=lambda each: "-".join(map(str, each)) if isinstance(each, tuple) else str(each),
)
def test_it_stays_within_its_limits(
    function: str, dtype: str, width: int, chip: tuple[int, int], tmp_path: Path
) -> None:
    tile = tile_of(function, arithmetic(dtype, chip, "none"), (width, width), chip)
    found = compiled(function, tile, chip, tmp_path)
    assert found.registers * 32 * tile.warps <= 65536
    assert found.spilled <= MOST_SPILLED[width]
    if found.tensor_cores is not None:
        expected = products(function, tile, chip)
        assert expected <= found.tensor_cores <= 2 * expected


@pytest.mark.parametrize("function", PASSES)
def test_every_tile_fits_the_shared_memory_of_its_chip(function: str) -> None:
    for chip in CHIPS:
        most = SHARED[chip[0] * 10 + chip[1]] << 10
        assert shared_limit(chip) <= most
        for dtype in DTYPES:
            for precision in ("none", "ieee"):
                name = arithmetic(dtype, chip, precision)
                for head in WIDTHS:
                    for value in WIDTHS:
                        tile = tile_of(function, name, (head, value), chip)
                        assert tile.shared_bytes(function) <= most
                        assert tile.warps >= 1 and tile.columns % 8 == 0
                        assert tile.columns >= 16 or name not in ("Float16", "BFloat16")


# ---- what flash_cuda brings with it ---------------------------------------------------

UNITS = cubins.records()
#: Bytes of a thread.
MOST_SPILLED_OF_FLASH = 64


def test_the_archive_is_compiled_of_these_sources() -> None:
    about = json.loads(cubins.RECORDS.read_text(encoding="utf-8"))
    for name, found in about["sources"].items():
        expected = builder.fingerprint(builder.FOLDER / name)
        assert found == expected, (
            "run kernels/builder/cubins.py: a source of the archive has changed"
        )
    assert about["nvrtc"] == ".".join(map(str, builder.NVRTC))
    assert list(UNITS) == [unit.name for unit in builder.units()]


@pytest.mark.parametrize("unit", builder.units(), ids=lambda unit: unit.name)
def test_a_unit_of_the_archive_stays_within_its_limits(unit: Any) -> None:
    kernels = UNITS[unit.name]["kernels"]
    assert set(kernels) == set(unit.kernels)
    for name, record in kernels.items():
        block = unit.kernels[name]
        assert (record["threads"], record["shared"]) == (block.threads, block.shared)
        assert record["registers"] * record["threads"] <= 65536
        assert record["spilled"] <= MOST_SPILLED_OF_FLASH
        assert record["shared"] <= SHARED[int(unit.target[3:].rstrip("a"))] << 10
        assert record["parameters"] <= 4096


def test_the_archive_is_small() -> None:
    assert cubins.ARCHIVE.stat().st_size < 3 << 20


def test_the_archive_holds_what_its_records_say() -> None:
    for name, record in UNITS.items():
        assert hashlib.sha256(cubins.machine_code(name)).hexdigest() == record["sha256"]


@pytest.mark.parametrize(
    ("chip", "width"),
    [(80, 128), (86, 64), (89, 256), (90, 128), (100, 64), (103, 256), (120, 128)],
)
def test_its_kernels_multiply_by_tensor_cores_and_copy_beside_that(
    chip: int, width: int, tmp_path: Path
) -> None:
    disassembler = nvdisasm()
    if not disassembler:
        pytest.skip("nvdisasm is not installed")
    file = tmp_path / "cubin"
    file.write_bytes(cubins.machine_code(f"sm_{chip}/bfloat16/{width}"))
    command = [disassembler, "-c", str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"\n\.text\.(\w+):\n", text)
    code = dict(zip(parts[1::2], parts[2::2], strict=True))
    tiles: dict[str, tuple[Any, int]] = {
        "flash_long": (flash.long_tile(width, chip), 2),
        "flash_short": (flash.short_tile(width), 2),
        "flash_differentiate_query": (flash.back_tile(width), 3),
    }
    for name, (tile, count) in tiles.items():
        expected = count * width // 16 * tile.columns // 8 * tile.row_tiles
        assert expected <= len(re.findall(r"\bHMMA\.", code[name])) <= 2 * expected
        assert re.search(r"\bLDGSTS\b", code[name]) and re.search(r"\bLDSM\b", code[name])


@pytest.mark.parametrize(
    "unit",
    # Every one in the job `cubins` of .ci/systems: that is minutes of work.
    [
        each
        for each in builder.units()
        if os.environ.get("EVERY_CUBIN") == "1" or each.name == "sm_86/float16/64"
    ],
    ids=lambda unit: unit.name,
)
def test_the_archive_can_be_compiled_again(unit: Any) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    try:
        version = compiling.nvrtc_version()
    except CudaUnavailable as error:
        pytest.skip(f"nvidia-cuda-nvrtc is not installed: {error}")
    if version != builder.NVRTC:
        pytest.skip(f"nvidia-cuda-nvrtc is {version}, and {builder.NVRTC} writes the same bytes")
    cubin, kernels = builder.compiled(unit)
    assert cubin == cubins.machine_code(unit.name)
    assert kernels == UNITS[unit.name]["kernels"]
