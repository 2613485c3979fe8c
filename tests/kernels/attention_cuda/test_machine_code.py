"""The machine code of our kernels for each architecture: registers, spills, shared memory, tensor cores.

NVRTC compiles it without a driver and reports its resources; nvdisasm lists the instructions.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from mlbackends_kernels.attention_cuda.device import MASK_SOURCE, SOURCE
from mlbackends_kernels.attention_cuda.launches import (
    OF_MASK,
    WIDTHS,
    Tile,
    arithmetic,
    macros,
    shared_limit,
    tile_of,
)
from mlbackends_kernels.cuda import kernels
from mlbackends_kernels.cuda.devices import CudaUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    try:
        source, logs = MASK_SOURCE if function == OF_MASK else SOURCE, io.StringIO()
        code = kernels.compiled(
            source, chip, macros(function, tile), is_cached=False, ptxas_options="-v", logs=logs
        )
    except CudaUnavailable as error:
        pytest.skip(f"nvidia-cuda-nvrtc is not installed: {error}")
    (registers,) = re.findall(r"Used (\d+) registers", logs.getvalue())
    spilled = [int(match) for match in re.findall(r"(\d+) bytes spill", logs.getvalue())]
    file = folder / "cubin"
    file.write_bytes(bytes(code.code))
    count = None
    if disassembler := nvdisasm():
        text = subprocess.run([disassembler, "-c", file], capture_output=True, text=True, check=True)
        count = len(re.findall(r"\bHMMA\.", text.stdout))
    return Found(int(registers), max(spilled), count)


def nvdisasm() -> str:
    wheels = [path for place in sys.path for path in Path(place or ".").glob("nvidia/*/bin/nvdisasm")]
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
