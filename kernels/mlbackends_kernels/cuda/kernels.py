"""Our CUDA C++: compiled by NVRTC at its first use, and launched.

cuda.core compiles it and keeps the machine code in the user's cache folder, so that other processes need
not compile it again.
"""

import ctypes
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mlbackends_kernels.cuda.devices import CudaError, call, driver, our_errors

#: A kernel that uses more dynamic shared memory must be allowed to on each device.
_USUAL_SHARED_BYTES = 48 << 10
_MOST_CACHED_BYTES = 256 << 20
#: An include of a file in the same folder.
_INCLUDED = re.compile(r'(?m)^#include "(\w+\.cu)"$')

Macros = Sequence[tuple[str, str]]


class Kernel:
    """A kernel that takes one structure. threads: of a block. shared: its bytes of dynamic shared memory."""

    def __init__(self, code: Any, name: str, threads: int, shared: int) -> None:
        driver()
        with our_errors(f"loading {name}"):
            self._handle = code.get_kernel(name).handle
        self._function = driver().CUfunction(int(self._handle))
        self._code, self._name, self._threads, self._shared = code, name, threads, shared
        self._allowed: set[int] = set()

    def __call__(self, index: int, stream: int, blocks: int, argument: ctypes.Structure) -> None:
        """Queue the kernel on a stream of a device, which must be current. Raises CudaError if refused."""
        if self._shared > _USUAL_SHARED_BYTES and index not in self._allowed:
            attribute = driver().CUfunction_attribute
            limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            device = call("cuDeviceGet", index)
            call("cuKernelSetAttribute", limit, self._shared, self._handle, device)
            self._allowed.add(index)
        # cuda.core 1.2 cannot launch with a structure as argument.
        addresses = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        sizes = blocks, 1, 1, self._threads, 1, 1, self._shared
        (status,) = driver().cuLaunchKernel(self._function, *sizes, stream, ctypes.addressof(addresses), 0)
        if status:
            raise CudaError(f"the launch of {self._name}", int(status), status.name)


def compiled(
    source: Path,
    capability: tuple[int, int],
    macros: Macros = (),
    *,
    is_cached: bool = True,
    **options: Any,
) -> Any:
    """Return the machine code of a file, cuda.core's ObjectCode. It needs neither a driver nor headers.

    is_cached: read and write the user's cache. options: further ProgramOptions, and `logs`, a file for
    NVRTC's log. Raises CudaError if NVRTC does not know the device or rejects the source, and
    CudaUnavailable without NVRTC.
    """
    with our_errors(f"compiling {source.name}"):
        from cuda.core import Program, ProgramOptions

        logs = options.pop("logs", None)
        chosen = ProgramOptions(
            name=source.name,
            std="c++17",
            arch=f"sm_{_target(capability)}",
            define_macro=list(macros) or None,
            **options,
        )
        program = Program(_text(source), "c++", chosen)
        if is_cached:
            try:
                from cuda.core.utils import FileStreamProgramCache

                stored = FileStreamProgramCache(cache_folder(), max_size_bytes=_MOST_CACHED_BYTES)
                return program.compile("cubin", cache=stored)
            except OSError:  # the folder is read-only, or the disk is full
                program = Program(_text(source), "c++", chosen)
        return program.compile("cubin", logs=logs)


@cache
def _text(source: Path) -> str:
    """Return a file with its includes in place: the key of the cache is made from the text."""
    text = source.read_text(encoding="utf-8")
    return _INCLUDED.sub(lambda match: _text(source.with_name(match[1])), text)


def cache_folder() -> Path:
    """Return the user's folder for machine code. Raises OSError where others can write to it."""
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    folder = folder / "mlbackends" / "kernels"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if os.name != "nt" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        raise PermissionError(f"other users can write to {folder}")
    return folder


@cache
def _target(capability: tuple[int, int]) -> int:
    """Return the architecture to compile for: the newest of the device's generation that NVRTC knows."""
    from cuda.bindings import nvrtc  # type: ignore[import-not-found,unused-ignore]

    _, known = nvrtc.nvrtcGetSupportedArchs()
    wanted = capability[0] * 10 + capability[1]
    usable = [number for number in known if number // 10 == wanted // 10 and number <= wanted]
    if not usable:
        names = ", ".join(f"sm{number}" for number in known)
        raise CudaError("NVRTC", "sm-unknown", f"no support for sm{wanted}; it supports {names}")
    return int(max(usable))
