"""Machine code of our CUDA C++: compiled by NVRTC at first use, and kept in the user's cache folder.

A file of the cache is named by all that decides its contents: the source, the options with the chip, and
the version of NVRTC. It begins with its own checksum, so a damaged one is compiled again; it is put in its
place by renaming, so processes may race. Where nothing can be written, each process compiles for itself.
"""

import contextlib
import hashlib
import os
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from mlbackends_kernels.cuda.errors import CudaError, CudaUnavailable

_CHECKSUM = hashlib.sha256
#: A file of ours that another one of its folder takes whole.
_INCLUDED = re.compile(r'(?m)^#include "(\w+\.cu)"')
_INSTALL = "pip install 'mlbackends[cuda]' nvidia-cuda-nvrtc"


class CompilationFailed(CudaError):
    """NVRTC does not know the chip, or refuses the source."""

    def __init__(self, message: str) -> None:
        RuntimeError.__init__(self, message)
        self.status = 6  # NVRTC_ERROR_COMPILATION


def machine_code(source: Path, capability: tuple[int, int], *definitions: str) -> bytes:
    """Return the cubin of a file for a chip. definitions: of macros, such as "PASS=forward".

    Raises CompilationFailed, or CudaUnavailable where there is no NVRTC.
    """
    options = options_for(capability, *definitions)
    kept = cache_file(source, options)
    if kept and (found := _read(kept)):
        return found
    cubin, _ = compiled(source, [*options, f"-I{source.parent}"])
    if kept:
        _keep(kept, cubin)
    return cubin


def options_for(capability: tuple[int, int], *definitions: str) -> list[str]:
    """Return the options of NVRTC. Raises CompilationFailed where it does not know the chip."""
    target = f"--gpu-architecture=sm_{_target(capability)}"
    return [target, "--std=c++17", *(f"-D{each}" for each in definitions)]


def cache_file(source: Path, options: list[str]) -> Path | None:
    """Return where the cubin of a file is kept, None where the user has no folder for caches."""
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    try:
        folder = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    included = _INCLUDED.findall(_text(source))
    texts = [_text(source), *(_text(source.with_name(name)) for name in included)]
    parts = (*texts, *options, *map(str, nvrtc_version()))
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return folder / "mlbackends" / "kernels" / f"{name}.cubin"


@cache
def _text(source: Path) -> str:
    return source.read_text(encoding="utf-8")


@cache
def nvrtc_version() -> tuple[int, int]:
    """Return the version of NVRTC."""
    major, minor = _call("nvrtcVersion")
    return int(major), int(minor)


def compiled(source: Path, options: list[str]) -> tuple[bytes, str]:
    """Compile a file, and return NVRTC's log too. It needs neither a driver nor headers."""
    text = _text(source).encode()
    program = _call("nvrtcCreateProgram", text, source.name.encode(), 0, [], [])
    try:
        try:
            _call("nvrtcCompileProgram", program, len(options), [each.encode() for each in options])
        except CudaError as error:
            message = f"{source.name}: {error} for {' '.join(options)}\n{_log(program)}"
            raise CompilationFailed(message.rstrip()) from None
        return _output(program, "CUBIN"), _log(program)
    finally:
        _call("nvrtcDestroyProgram", program)


def _log(program: Any) -> str:
    return _output(program, "ProgramLog").decode(errors="replace").strip("\0 \n")


def _output(program: Any, kind: str) -> bytes:
    """Return an output of a program: its CUBIN or ProgramLog."""
    room = bytearray(_call(f"nvrtcGet{kind}Size", program))
    _call(f"nvrtcGet{kind}", program, room)
    return bytes(room)


@cache
def _target(capability: tuple[int, int]) -> int:
    """Return the chip to compile for, as sm86 is 86: code also runs on later chips of its generation."""
    wanted = capability[0] * 10 + capability[1]
    known = [int(each) for each in _call("nvrtcGetSupportedArchs")]
    usable = [each for each in known if each // 10 == wanted // 10 and each <= wanted]
    if not usable:
        version = ".".join(map(str, nvrtc_version()))
        about = f"it compiles for {', '.join(f'sm{each}' for each in known)}"
        raise CompilationFailed(f"NVRTC {version} does not know sm{wanted}; {about}")
    return max(usable)


def _call(function: str, *arguments: Any) -> Any:
    """Call NVRTC and return what it returns beside its status."""
    try:
        from cuda.bindings import nvrtc  # type: ignore[import-not-found,unused-ignore]

        status, *values = getattr(nvrtc, function)(*arguments)
    except (ImportError, RuntimeError) as error:  # no binding; no library for it
        raise CudaUnavailable(f"NVRTC cannot be called: {error}", _INSTALL) from None
    if status:
        name = nvrtc.nvrtcGetErrorString(status)[1].decode()
        raise CudaError(function, name, name)
    return values[0] if len(values) == 1 else values


def _read(path: Path) -> bytes:
    """Return a kept cubin, nothing where there is none or it is damaged."""
    try:
        kept = path.read_bytes()
    except OSError:
        return b""
    size = _CHECKSUM().digest_size
    return kept[size:] if _CHECKSUM(kept[size:]).digest() == kept[:size] else b""


def _keep(path: Path, cubin: bytes) -> None:
    part = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(number, "wb") as file:
            file.write(_CHECKSUM(cubin).digest() + cubin)
        Path(part).replace(path)
    except OSError:  # read-only or full: the next process compiles again
        if part:
            with contextlib.suppress(OSError):
                Path(part).unlink()
