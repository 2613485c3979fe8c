"""cuBLAS: NVIDIA's dense linear algebra, with cuBLASLt, on which it is built.

Finds:    every libcublas and libcublasLt, in wheels, conda, CUDA_HOME, customary folders and the
          loader's cache.
Usable:   each multiplies two 2 by 2 matrices on device 0 correctly.
Caveats:  both must be of one version; opening cuBLASLt takes 190 MB, so it is done in a child.
Source:   cuBLAS documentation, cublasGetProperty, cublasSgemm, cublasLtMatmul, and its section on
          the variable CUBLAS_WORKSPACE_CONFIG.
"""

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.device import expect, first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, agree, version_macros
from mlbackends.model.records import Answer, Finding, Library

LIBRARY = CudaLibrary(
    "cublas",
    (
        "libcublas", "libcublasLt",
    ),
    headers=("cublas_api.h",),
    macros=version_macros("CUBLAS_VER"),
    property_function="cublasGetProperty",
)  # fmt: skip
LT = replace(LIBRARY, property_function="cublasLtGetProperty")
COMPUTE_32F = 68
REAL_32F = 0
# By columns, as BLAS has them: [[1, 3], [2, 4]] times [[5, 7], [6, 8]].
LEFT, RIGHT, PRODUCT = (1, 2, 3, 4), (5, 6, 7, 8), (23, 34, 31, 46)


def find(host: Host) -> Finding:
    """Look for every copy of both libraries, and at the variables that steer them."""
    finding = LIBRARY.find(host)
    named = [
        replace(library, name="cublasLt") if "cublasLt" in library.soname else library
        for library in finding.libraries
    ]
    # cuBLAS goes first: it represents the probe.
    libraries = tuple(sorted(named, key=lambda library: library.name))
    warnings = [*finding.warnings]
    winners = {
        (library.name, library.soname.rpartition(".")[2]): library
        for library in libraries
        if library.wins
    }
    for (name, number), library in winners.items():
        other = winners.get(("cublasLt", number))
        if name != "cublas" or not other or not library.version or not other.version:
            continue
        if not agree(library.version, other.version):
            message = f"{library.path} is {library.version}, and {other.path} is {other.version}"
            hint = "cuBLAS needs the cuBLASLt of its version"
            warnings.append(Reason("conflict", message, hint))
    return replace(finding, libraries=libraries, warnings=tuple(warnings))


def load(opened: CDLL, library: Library) -> Answer:
    """Ask the version; unlike cublasGetVersion this needs no handle, and so no device."""
    return (LT if library.name == "cublasLt" else LIBRARY).load(opened, library)


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices on the device."""
    call = LIBRARY.calls(opened)
    device = first_device(int(library.version.split(".")[0]))
    left, right, product = device.floats(*LEFT), device.floats(*RIGHT), device.floats(0, 0, 0, 0)
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    if library.name == "cublasLt":
        handle, two = call.create("cublasLtCreate"), ctypes.c_uint64(2)
        operation = call.create("cublasLtMatmulDescCreate", COMPUTE_32F, REAL_32F)
        stride = ctypes.c_int64(2)
        layout = call.create("cublasLtMatrixLayoutCreate", REAL_32F, two, two, stride)
        factors = (one, left, layout, right, layout, zero, product, layout, product, layout)
        heuristic, workspace, stream = None, (None, ctypes.c_size_t(0)), None
        call("cublasLtMatmul", handle, operation, *factors, heuristic, *workspace, stream)
    else:
        handle, as_is = call.create("cublasCreate_v2"), 0
        matrices = (one, left, 2, right, 2, zero, product, 2)
        call("cublasSgemm_v2", handle, as_is, as_is, 2, 2, 2, *matrices)
    expect("a product of matrices", device.read_floats(product, 4), PRODUCT)
    return Answer(library)
