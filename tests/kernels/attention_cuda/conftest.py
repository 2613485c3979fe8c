"""attention.cu on the CPU: compiled by g++ with cuda_on_host.h, and launched with numpy's memory."""

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
from mlbackends_kernels.attention_flash import hopper
from mlbackends_kernels.attention_flash import launches as flash

if TYPE_CHECKING:
    from mlbackends_kernels.attention_cuda.launches import Launch, Tile

HERE = Path(__file__).parent
FLASH_SOURCE = SOURCE.parents[1] / "attention_flash" / "flash.cu"
HOPPER_SOURCE = FLASH_SOURCE.with_name("hopper.cu")
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
_OF_FLASH = """
extern "C" void launch_{kernel}(const {argument}* given, unsigned grid) {{
  host::launch(grid, {threads}, shared_memory, {shared}, [&] {{ {kernel}(*given); }});
}}
"""
_OF_FLASHS_DRIVER = """
extern "C" void run_{kernel}(const unsigned* grid, const unsigned*, void** at) {{
  launch_{kernel}((const {argument}*)at[0], grid[0]);
}}
"""


_OF_HOPPERS_DRIVER = """
extern "C" void run_{kernel}(const unsigned* grid, const unsigned*, void** at) {{
  alignas(64) static Call call;
  typedef Tile<{tile}> T;
  memcpy(&call, at[0], sizeof call);
  const char* failure = hopper::run(grid[0], T::THREADS, T::SHARED_BYTES, [] {{ {function}<T>(call); }});
  if (*failure) {{ fputs(failure, stderr); abort(); }}
}}
"""


def hopper_pass(kernel: str) -> str:
    """Return the function of hopper.cu that a kernel runs."""
    return {"hopper_query": "query", "hopper_both": "both"}.get(kernel, "forward")


class HostKernels:
    """Launches on the CPU. The tiles of narrow rows are compiled together, any other when it is met."""

    def __init__(self, folder: Path) -> None:
        self._compiler = shutil.which("g++") or ""
        if sys.platform != "linux" or not self._compiler:
            pytest.skip("no g++ on Linux to run CUDA C++ on the CPU with")
        self._folder = folder
        wanted = {("Float16", each) for each in ALONE} | {("FullFloat32", each) for each in ALONE}
        wanted |= {(arithmetic(*each), function) for each in ARITHMETICS for function in PASSES}
        usual = [
            (function, tile_of(function, name, (32, 32), HOPPER))
            for name, function in sorted(wanted)
        ]
        self._usual = usual
        self._runs: dict[tuple[str, Tile], Any] = {}
        self._flash: dict[tuple[str, int, int], Any] = {}

    def launch(self, what: Launch) -> None:
        key = (what.function, what.tile)
        if key not in self._runs:
            self._runs |= self._compiled(self._usual if key in self._usual else [key])
        self._runs[key](ctypes.byref(what.whole or what.call), what.grid)

    def launch_flash(self, what: flash.Launch, dtype: str, chip: int) -> None:
        """Run a kernel of flash.cu as it is compiled for a chip."""
        key = (dtype, what.width, chip)
        if key not in self._flash:
            self._flash[key] = ctypes.CDLL(str(self.flash_library(*key)))
            assert self._flash[key].serving_bytes() == ctypes.sizeof(flash.Serving)
        run = self._flash[key][f"launch_{what.kernel}"]
        run.argtypes = (ctypes.c_void_p, ctypes.c_uint)
        run(ctypes.byref(what.argument), what.grid)

    def of_the_driver(self, tiles: dict[str, Tile]) -> Path:
        """Return a library of which tests/fakelibs/computing_driver.c runs one tile of each pass."""
        return self._attention(list(tiles.items()), _ENTRY + _OF_THE_DRIVER)

    def flash_library(self, dtype: str, width: int, chip: int, of_the_driver: bool = False) -> Path:
        """Return a library of all kernels of flash.cu as one unit is compiled."""
        code = "".join(
            f"#define {name} {value}\n"
            for name, value in flash.definitions(dtype, width, chip).items()
        )
        code += f'#include "{FLASH_SOURCE}"\n'
        code += 'extern "C" size_t serving_bytes() { return sizeof(Serving); }\n'
        for kernel in flash.kernels(width):
            argument = flash.block_of(kernel, width, chip)
            code += _OF_FLASH.format(kernel=kernel, **argument._asdict())
            if of_the_driver:
                code += _OF_FLASHS_DRIVER.format(kernel=kernel, **argument._asdict())
        if of_the_driver and chip == HOPPER[0] * 10:
            code = f"#include <deque>\n#include <map>\n{code}namespace on_hopper {{\n"
            code += f'#include "{HOPPER_SOURCE}"\n'
            for kernel, tile in hopper.tiles(dtype, width).items():
                function, arguments = hopper_pass(kernel), ",".join(map(str, tile))
                code += _OF_HOPPERS_DRIVER.format(kernel=kernel, function=function, tile=arguments)
            code += "}\n"
        return self.library(code, FLASH_SOURCE, HOPPER_SOURCE, HERE / "hopper_on_host.h")

    def _compiled(self, wanted: list[tuple[str, Tile]]) -> dict[tuple[str, Tile], Any]:
        opened = ctypes.CDLL(str(self._attention(wanted, _ENTRY)))
        opened.call_bytes.restype = ctypes.c_size_t
        assert opened.call_bytes() == ctypes.sizeof(Call)
        for number in range(len(wanted)):
            opened[f"run_{number}"].argtypes = (ctypes.c_void_p, ctypes.c_uint)
        return {key: opened[f"run_{number}"] for number, key in enumerate(wanted)}

    def _attention(self, wanted: list[tuple[str, Tile]], entries: str) -> Path:
        code = (
            f'#include "{MASK_SOURCE}"\nextern "C" size_t call_bytes() {{ return sizeof(Call); }}\n'
        )
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
        texts = (code, *(each.read_text() for each in sources))
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


@pytest.fixture(scope="session")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> HostKernels:
    base = tmp_path_factory.getbasetemp()
    # The processes of one run share what each has compiled: their folders stand beside each other.
    return HostKernels(
        (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "host-kernels"
    )
