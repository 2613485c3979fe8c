"""Preferred libraries of NVIDIA and AMD, and the sizes of their workspaces.

Each function returns the current setting, after setting it if it is given a value.
"""

import os
import warnings
from enum import Enum
from typing import TYPE_CHECKING

from mlbackends.base.errors import nearest
from mlbackends.libraries.cuda import in_process
from mlbackends.switches import availability, store

if TYPE_CHECKING:
    from typing import TypeVar

    Member = TypeVar("Member", bound="_Backend")


class _Backend(Enum):
    """A library among several, with torch's number; int() of it works, and it equals no int."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)


class _LinalgBackend(_Backend):
    """A library that solves, factors and inverts matrices."""

    Default = 0
    Cusolver = 1
    Magma = 2


class _BlasBackend(_Backend):
    """A library that multiplies matrices."""

    Default = 0
    Cublas = 1
    Hipblas = 1
    Cublaslt = 2
    Hipblaslt = 2
    Ck = 3


class _ROCmFABackend(_Backend):
    """A library with flash attention on ROCm."""

    Default = 0
    AOTriton = 1
    Ck = 2


#: In bytes; CUBLAS_WORKSPACE_CONFIG has it as :4096:2:16:8.
_USUAL_WORKSPACE = (4096 * 2 + 16 * 8) << 10
_HOPPER, _HOPPER_WORKSPACE = (9, 0), 32 << 20
_LT_WORKSPACE = 1 << 20
_UNIFIED = "TORCH_CUBLASLT_UNIFIED_WORKSPACE"

#: The warnings given so far; each is given once per process.
_warned: set[str] = set()


def preferred_linalg_library(backend: "str | _LinalgBackend | None" = None) -> _LinalgBackend:
    """Return the preferred library for linear algebra on CUDA; set it to `backend` before.

    "default", "cusolver", "magma" or a member of the enumeration. Raises RuntimeError for anything
    else, and for a library that is not installed; then nothing has changed.
    """
    if backend is not None:
        chosen = _member(backend, _LinalgBackend, RuntimeError)
        if chosen is _LinalgBackend.Magma:
            _warn_once("MAGMA is no longer developed, and torch is dropping it: prefer cusolver")
            _need(_installed("magma", "libmagma"), "MAGMA", "libmagma")
        elif chosen is _LinalgBackend.Cusolver:
            _need(_found_by_probe("cusolver", "cusolver"), "cuSOLVER", "libcusolver")
        store.write("cuda.preferred_linalg_library", chosen.name.lower())
    return _words(_LinalgBackend)[str(store.read("cuda.preferred_linalg_library"))]


def preferred_blas_library(backend: "str | _BlasBackend | None" = None) -> _BlasBackend:
    """Return the library that multiplies matrices on a device; set it to `backend` before.

    "default" (cuBLAS), "cublas", "hipblas", "cublaslt", "hipblaslt", "ck" or a member of the
    enumeration. Raises RuntimeError for anything else, and for cuBLASLt where it is not installed;
    then nothing has changed.
    """
    if backend is not None:
        chosen = _member(backend, _BlasBackend, RuntimeError)
        if chosen is _BlasBackend.Cublaslt:
            probes = {"cublas": "cublasLt", "hipblaslt": "hipblaslt"}
            is_found = any(_found_by_probe(probe, name) for probe, name in probes.items())
            _need(is_found, "cuBLASLt", "libcublasLt, nor libhipblaslt,")
        elif chosen is _BlasBackend.Ck:
            _warn_once("Composable Kernel as BLAS is experimental")
        store.write("cuda.preferred_blas_library", chosen.name.lower())
    return _words(_BlasBackend)[str(store.read("cuda.preferred_blas_library"))]


def preferred_rocm_fa_library(backend: "str | _ROCmFABackend | None" = None) -> _ROCmFABackend:
    """Return the library for flash attention on ROCm; set it to `backend` before.

    "default", "aotriton", "ck" or a member of the enumeration. Raises RuntimeError for another word
    and ValueError for another type.
    """
    if backend is not None:
        chosen = _member(backend, _ROCmFABackend, ValueError)
        store.write("cuda.preferred_rocm_fa_library", chosen.name.lower())
    return _words(_ROCmFABackend)[str(store.read("cuda.preferred_rocm_fa_library"))]


def cublas_workspace_size(size: int | None = None) -> int:
    """Return the bytes that cuBLAS may work in on the current device; set them to `size` before.

    A size that was set overrides CUBLAS_WORKSPACE_CONFIG. By default it is 32 MiB on a device of
    capability 9.0, and 8.125 MiB on any other and without a device. Raises TypeError for what is not an
    int, RuntimeError for a negative size.
    """
    if size is not None:
        store.write("cuda.cublas_workspace_size", size)
    chosen = store.read("cuda.cublas_workspace_size")
    if isinstance(chosen, int):
        return chosen
    is_hopper = in_process.capability(in_process.current_device()) == _HOPPER
    return _HOPPER_WORKSPACE if is_hopper else _USUAL_WORKSPACE


def cublaslt_workspace_size(size: int | None = None) -> int:
    """Return the bytes that cuBLASLt may work in on the current device; set them to `size` before.

    A size that was set overrides CUBLASLT_WORKSPACE_SIZE; by default it is 1 MiB. cuBLASLt shares
    cuBLAS's memory, so it never gets more, unless TORCH_CUBLASLT_UNIFIED_WORKSPACE is 0.
    Raises as `cublas_workspace_size` does.
    """
    if size is not None:
        store.write("cuda.cublaslt_workspace_size", size)
    chosen = store.read("cuda.cublaslt_workspace_size")
    requested = chosen if isinstance(chosen, int) else _LT_WORKSPACE
    if os.environ.get(_UNIFIED) == "0":
        return requested
    ceiling = cublas_workspace_size()
    if requested > ceiling:
        _warn_once(
            f"cuBLASLt shares cuBLAS's workspace: it gets {ceiling} bytes of the requested {requested};"
            f" set cublas_workspace_size too, or {_UNIFIED}=0"
        )
    return min(requested, ceiling)


def blas_workspace_size(size: int | None = None, backend: "str | _BlasBackend | None" = None) -> int:
    """Return the bytes that a BLAS may work in; set them to `size` before. The first argument is the size.

    backend: as for `preferred_blas_library`, by default the preferred one. Raises RuntimeError for an
    unknown one and for ck, which has no workspace.
    """
    requested = (
        preferred_blas_library()
        if backend is None
        else _member(backend, _BlasBackend, RuntimeError, "backend string")
    )
    if requested is _BlasBackend.Ck:
        raise RuntimeError("CK backend does not use a workspace.")
    if requested is _BlasBackend.Cublaslt:
        return cublaslt_workspace_size(size)
    return cublas_workspace_size(size)


def _words(kind: "type[Member]") -> "dict[str, Member]":
    return {name.lower(): member for name, member in kind.__members__.items()}


def _member(
    backend: object, kind: "type[Member]", wrong_type: type[Exception], noun: str = "input value"
) -> "Member":
    """Return the member that a word means, or the member itself. noun: torch's term, for the message."""
    if isinstance(backend, kind):
        return backend
    if not isinstance(backend, str):
        needed = f"A str or a {kind.__name__} is needed, not {type(backend).__name__}"
        raise wrong_type(f"Unknown {noun.removesuffix(' string')} type. {needed}")
    words = _words(kind)
    if backend not in words:
        near = nearest(backend, tuple(words))
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise RuntimeError(f"Unknown {noun}. Choose from: {', '.join(words)}. It was {backend!r}.{hint}")
    return words[backend]


def _found_by_probe(probe: str, name: str) -> bool:
    libraries = availability.found_report(probe).libraries
    return any(library.name == name and not library.reasons for library in libraries)


def _installed(name: str, stem: str) -> bool:
    """Return whether a library without a probe of ours is installed where programs find it."""
    from mlbackends.host.host import Host
    from mlbackends.libraries.search import libraries_named

    return any(not library.reasons for library in libraries_named(Host(), name, stem))


def _need(is_found: bool, library: str, file: str) -> None:
    if not is_found:
        raise RuntimeError(f"Cannot set preferred backend to {library}: {file} is not installed here.")


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, UserWarning, stacklevel=3)
