"""The machine code of flash_cuda's kernels, as kernels/builder/cubins.py has compiled it ahead of time.

cubins.xz holds one stream of xz for each generation of chips and each width, of the cubins one after the
other; cubins.json tells where each lies, and what its kernels are launched with. A unit is the kernels
of a file for one target of the compiler, such as sm_90, one element type and one width.
"""

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from mlbackends_kernels.cuda.launching import Kernel

ARCHIVE, RECORDS = (Path(__file__).with_name(name) for name in ("cubins.xz", "cubins.json"))


@cache
def records() -> dict[str, Any]:
    """Return the record of each unit, by its name: see `unit`."""
    units: dict[str, Any] = json.loads(RECORDS.read_text(encoding="utf-8"))["units"]
    return units


def unit(target: str, dtype: str, width: int) -> str:
    """Return the name of the unit of a target, an element type and a width: "sm_90/float16/128"."""
    return f"{target}/{dtype}/{width}"


def machine_code(name: str) -> bytes:
    """Return the cubin of a unit."""
    record = records()[name]
    first, size = record["place"]
    return _stream(*record["stream"])[first : first + size]


@cache
def kernel(name: str, function: str) -> Kernel:
    """Return a kernel of a unit, ready to be launched."""
    record = records()[name]["kernels"][function]
    return Kernel(_kept(name), function, (record["threads"], 1, 1), record["shared"])


@cache
def _kept(name: str) -> bytes:
    return machine_code(name)


@cache
def _stream(start: int, size: int) -> bytes:
    with ARCHIVE.open("rb") as file:
        file.seek(start)
        return lzma.decompress(file.read(size))
