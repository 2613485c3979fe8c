"""rocBLAS: AMD's linear algebra on the GPU.

Finds:    every librocblas, and for which instruction sets its folder holds GPU code.
Loadable: rocblas_get_version_string answers.
Usable:   a product of two 2 by 2 matrices, computed on the first GPU, is right.
Caveats:  without code for the GPU's instruction set it aborts at its first use.
Source:   rocBLAS API reference, rocblas_create_handle, rocblas_sgemm.
"""

from collections.abc import Callable  # noqa: TC003

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.amd import call_failed, library_finding
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Fact, Finding, Library

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


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    text = ctypes.create_string_buffer(256)
    opened.rocblas_get_version_string.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    if status := opened.rocblas_get_version_string(text, len(text)):
        raise call_failed("rocblas_get_version_string", status)
    return Answer(replace(library, version=text.value.decode(errors="replace").strip()))


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two small matrices on the first GPU; HIP comes with rocBLAS, which links to it."""
    opened.hipMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    opened.hipMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    opened.hipFree.argtypes = [ctypes.c_void_p]
    gemm = opened.rocblas_sgemm
    matrix, scalar, number = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
    gemm.argtypes = [ctypes.c_void_p, number, number, number, number, number, scalar]
    gemm.argtypes += [matrix, number, matrix, number, scalar, matrix, number]
    opened.rocblas_destroy_handle.argtypes = [ctypes.c_void_p]
    handle, memory, half = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float * 4
    size = 16
    both, product = (ctypes.c_float * 8)(*_LEFT, *_RIGHT), half()
    one, zero = ctypes.c_float(1), ctypes.c_float(0)

    def multiply() -> int:
        left = memory.value or 0
        right, out = left + size, left + 2 * size
        return int(
            gemm(
                *(handle, _NO_TRANSPOSE, _NO_TRANSPOSE, 2, 2, 2),
                *(ctypes.byref(one), left, 2, right, 2, ctypes.byref(zero), out, 2),
            )
        )

    steps: tuple[tuple[str, Callable[[], int]], ...] = (
        ("rocblas_create_handle", lambda: opened.rocblas_create_handle(ctypes.byref(handle))),
        ("hipMalloc", lambda: opened.hipMalloc(ctypes.byref(memory), 3 * size)),
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
        message = f"the product of two matrices is {list(product)}; right is {_PRODUCT}"
        raise NotUsable("wrong-result", message)
    return Answer(library)
