"""attention.cu on the CPU: compiled by g++ with cuda_on_host.h, and launched with numpy's memory.

Tests of other folders load this file by its path.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends_kernels.attention_cuda.device import MASK_SOURCE, SOURCE
from mlbackends_kernels.attention_cuda.launches import OF_MASK, Call, arithmetic, tile_of

if TYPE_CHECKING:
    from mlbackends_kernels.attention_cuda.launches import Launch, Tile

HERE = Path(__file__).parent
PASSES = (
    "forward",
    "summarize",
    "differentiate_query",
    "differentiate_both",
    "differentiate_sinks",
    "differentiate_mask",
)
ALONE = ("differentiate_key", "differentiate_value")
HOPPER, TURING = (9, 0), (7, 5)
ARITHMETICS = (
    *((dtype, HOPPER, "none") for dtype in ("float16", "bfloat16", "float32")),
    *((dtype, TURING, "ieee") for dtype in ("bfloat16", "float32")),
)

_ENTRY = """
extern "C" void run_{number}(const Call* call, unsigned grid) {{
  typedef Tile<{tile}> Chosen;
  const {argument}& given = *(const {argument}*)call;
  host::launch(grid, Chosen::THREADS, shared_memory, {shared}, [&] {{ {function}<Chosen>(given); }});
}}
"""
_OF_THE_DRIVER = """
extern "C" void run_attention_{function}(const unsigned* grid, const unsigned*, void** at) {{
  run_{number}((const Call*)at[0], grid[0]);
}}
"""


class HostKernels:
    """Launches on the CPU. The tiles of narrow rows are compiled together, any other when it is met."""

    def __init__(self, folder: Path) -> None:
        self._compiler = shutil.which("g++") or ""
        if sys.platform != "linux" or not self._compiler:
            pytest.skip("no g++ on Linux to run CUDA C++ on the CPU with")
        self._folder = folder
        wanted = {("Float16", function) for function in ALONE} | {
            ("FullFloat32", function) for function in ALONE
        }
        wanted |= {(arithmetic(*row), function) for row in ARITHMETICS for function in PASSES}
        usual = [(function, tile_of(function, name, (32, 32), HOPPER)) for name, function in sorted(wanted)]
        self._usual = usual
        self._runs: dict[tuple[str, Tile], Any] = {}

    def launch(self, what: Launch) -> None:
        key = (what.function, what.tile)
        if key not in self._runs:
            self._runs |= self._compiled(self._usual if key in self._usual else [key])
        self._runs[key](ctypes.byref(what.whole or what.call), what.grid)

    def of_the_driver(self, tiles: dict[str, Tile]) -> Path:
        """Return a library of which tests/fakelibs/computing_driver.c runs one tile of each pass."""
        return self._attention(list(tiles.items()), _ENTRY + _OF_THE_DRIVER)

    def _compiled(self, wanted: list[tuple[str, Tile]]) -> dict[tuple[str, Tile], Any]:
        opened = ctypes.CDLL(str(self._attention(wanted, _ENTRY)))
        opened.call_bytes.restype = ctypes.c_size_t
        assert opened.call_bytes() == ctypes.sizeof(Call)
        for number in range(len(wanted)):
            opened[f"run_{number}"].argtypes = (ctypes.c_void_p, ctypes.c_uint)
        return {key: opened[f"run_{number}"] for number, key in enumerate(wanted)}

    def _attention(self, wanted: list[tuple[str, Tile]], entries: str) -> Path:
        code = f'#include "{MASK_SOURCE}"\nextern "C" size_t call_bytes() {{ return sizeof(Call); }}\n'
        for number, (function, tile) in enumerate(wanted):
            parts = {
                "tile": ",".join(map(str, tile)),
                "shared": tile.shared_bytes(function),
                "argument": "MaskCall" if function == OF_MASK else "Call",
            }
            code += entries.format(number=number, function=function, **parts)
        return self.library(code, MASK_SOURCE)

    def library(self, code: str, *sources: Path) -> Path:
        sources = (*sources, SOURCE, HERE / "cuda_on_host.h")
        texts = (code, *(source.read_text() for source in sources))
        name = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]
        self._folder.mkdir(parents=True, exist_ok=True)
        library = self._folder / f"{name}.so"
        if not library.exists():
            part = library.with_suffix(f".{os.getpid()}")
            flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-U_FORTIFY_SOURCE"]
            command: list[str | Path] = [
                self._compiler,
                *flags,
                f"-I{HERE}",
                "-o",
                part,
                "-xc++",
                "-",
            ]
            subprocess.run(command, input=code.encode(), check=True)
            part.replace(library)
        return library
