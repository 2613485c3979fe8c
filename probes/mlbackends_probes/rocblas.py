"""rocBLAS: AMD's linear algebra on the GPU.

Finds:    every librocblas, and for which instruction sets its folder holds GPU code.
Loadable: rocblas_get_version_string answers.
Usable:   a product of two 2 by 2 matrices, computed on the first GPU, is right.
Caveats:  without code for the GPU's instruction set it aborts at its first use.
Source:   rocBLAS API reference, rocblas_create_handle, rocblas_sgemm.
"""

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.amd import library_finding, rocm_calls
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.model.records import Answer, Finding, Library

NO_TRANSPOSE = 111
TO_DEVICE, TO_HOST = 1, 2
LEFT = (1.0, 3.0, 2.0, 4.0)  # [[1, 2], [3, 4]] by columns
RIGHT = (5.0, 7.0, 6.0, 8.0)
PRODUCT = [19.0, 43.0, 22.0, 50.0]
SIZE = 16


def find(host: Host) -> Finding:
    """Look for every copy of rocBLAS and the GPU code next to the first."""
    return library_finding(host, "rocBLAS", "librocblas", "rocblas/library")


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    text = ctypes.create_string_buffer(256)
    rocm_calls(opened)("rocblas_get_version_string", text, ctypes.c_size_t(len(text)))
    return Answer(replace(library, version=text.value.decode(errors="replace").strip()))


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two small matrices on the first GPU; HIP comes with rocBLAS, which links to it."""
    call = rocm_calls(opened)
    operands, product = (ctypes.c_float * 8)(*LEFT, *RIGHT), (ctypes.c_float * 4)()
    handle = call.create("rocblas_create_handle")
    memory = call.create("hipMalloc", ctypes.c_size_t(3 * SIZE))
    call("hipMemcpy", memory, operands, ctypes.c_size_t(2 * SIZE), TO_DEVICE)
    left, right, out = (ctypes.c_void_p((memory.value or 0) + part * SIZE) for part in range(3))
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    sizes = (NO_TRANSPOSE, NO_TRANSPOSE, 2, 2, 2)
    call("rocblas_sgemm", handle, *sizes, one, left, 2, right, 2, zero, out, 2)
    call("hipMemcpy", product, out, ctypes.c_size_t(SIZE), TO_HOST)
    call("hipFree", memory)
    call("rocblas_destroy_handle", handle)
    require_equal("rocblas_sgemm", list(product), PRODUCT)
    return Answer(library)
