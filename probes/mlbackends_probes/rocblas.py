"""rocBLAS: AMD's linear algebra on the GPU.

Finds:    every librocblas, and for which instruction sets its folder holds GPU code.
Loadable: rocblas_get_version_string answers.
Usable:   a product of two 2 by 2 matrices, computed on the first GPU, is right.
Caveats:  without code for the GPU's instruction set it aborts at its first use.
Source:   rocBLAS API reference, rocblas_create_handle, rocblas_sgemm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlbackends.libraries.amd import call_failed, library_finding
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Fact

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

    from mlbackends.host.host import Host
    from mlbackends.model.records import Finding, Library

GROUP = "library"
FACTS = (
    Fact("targets", list[str], "The instruction sets for which GPU code lies beside it."),
    Fact("environment", dict[str, str], "The variables that steer rocBLAS and are set."),
)

_VARIABLES = ("ROCBLAS_TENSILE_LIBPATH", "ROCBLAS_LAYER", "ROCBLAS_USE_HIPBLASLT")
_NO_TRANSPOSE = 111
_TO_DEVICE, _TO_HOST = 1, 2
_LEFT = (1.0, 3.0, 2.0, 4.0)  # [[1, 2], [3, 4]] by columns
_RIGHT = (5.0, 7.0, 6.0, 8.0)
_PRODUCT = [19.0, 43.0, 22.0, 50.0]


def find(host: Host) -> Finding:
    """Look for every copy of rocBLAS and the GPU code beside the first."""
    return library_finding(host, "rocBLAS", "librocblas", _VARIABLES, "rocblas/library")


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    from ctypes import c_char_p, c_size_t, create_string_buffer

    text = create_string_buffer(256)
    opened.rocblas_get_version_string.argtypes = [c_char_p, c_size_t]
    if status := opened.rocblas_get_version_string(text, len(text)):
        raise call_failed("rocblas_get_version_string", status)
    return Answer(replace(library, version=text.value.decode(errors="replace").strip()))


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Multiply two small matrices on the first GPU; HIP comes with rocBLAS, which links to it."""
    from ctypes import byref, c_float, c_int, c_size_t, c_void_p

    opened.hipMalloc.argtypes = [c_void_p, c_size_t]
    opened.hipMemcpy.argtypes = [c_void_p, c_void_p, c_size_t, c_int]
    opened.hipFree.argtypes = [c_void_p]
    gemm = opened.rocblas_sgemm
    matrix, scalar, number = c_void_p, c_void_p, c_int
    gemm.argtypes = [c_void_p, number, number, number, number, number, scalar]
    gemm.argtypes += [matrix, number, matrix, number, scalar, matrix, number]
    opened.rocblas_destroy_handle.argtypes = [c_void_p]
    handle, memory, half = c_void_p(), c_void_p(), c_float * 4
    size = 16
    both, product = (c_float * 8)(*_LEFT, *_RIGHT), half()
    one, zero = c_float(1), c_float(0)

    def multiply() -> int:
        left = memory.value or 0
        right, out = left + size, left + 2 * size
        return int(
            gemm(
                *(handle, _NO_TRANSPOSE, _NO_TRANSPOSE, 2, 2, 2),
                *(byref(one), left, 2, right, 2, byref(zero), out, 2),
            )
        )

    steps: tuple[tuple[str, Callable[[], int]], ...] = (
        ("rocblas_create_handle", lambda: opened.rocblas_create_handle(byref(handle))),
        ("hipMalloc", lambda: opened.hipMalloc(byref(memory), 3 * size)),
        ("hipMemcpy", lambda: opened.hipMemcpy(memory, both, 2 * size, _TO_DEVICE)),
        ("rocblas_sgemm", multiply),
        (
            "hipMemcpy",
            lambda: opened.hipMemcpy(product, (memory.value or 0) + 2 * size, size, _TO_HOST),
        ),
        ("hipFree", lambda: opened.hipFree(memory)),
        ("rocblas_destroy_handle", lambda: opened.rocblas_destroy_handle(handle)),
    )
    for name, call in steps:
        if status := call():
            raise call_failed(name, status)
    if list(product) != _PRODUCT:
        said = f"the product of two matrices is {list(product)}; right is {_PRODUCT}"
        raise NotUsable("wrong-result", said)
    return Answer(library)
