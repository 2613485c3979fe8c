"""cuBLAS: NVIDIA's dense linear algebra, with cuBLASLt, on which it stands.

Finds:    every libcublas and libcublasLt, in wheels, conda, CUDA_HOME, customary folders and the
          loader's cache.
Usable:   each multiplies two matrices of 2 by 2 on device 0, and the product is right.
Caveats:  both must be of one version; opening cuBLASLt takes 190 MB, so it is done in a child.
Source:   cuBLAS documentation, cublasGetProperty, cublasSgemm, cublasLtMatmul, and its section on
          the variable CUBLAS_WORKSPACE_CONFIG.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlbackends.libraries.cuda.libraries import (
    COPY_FACTS,
    ENVIRONMENT,
    agree,
    answered,
    environment,
    find_libraries,
)
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Answer, Finding, Library

if TYPE_CHECKING:
    import ctypes

    from mlbackends.host.host import Host
    from mlbackends.libraries.cuda.calls import Calls

GROUP = "library"
FACTS = (*COPY_FACTS, ENVIRONMENT)

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
STATUSES = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED",
    7: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    15: "CUBLAS_STATUS_NOT_SUPPORTED",
    16: "CUBLAS_STATUS_LICENSE_ERROR",
}
COMPUTE_32F = 68
REAL_32F = 0
# By columns, as BLAS has them: [[1, 3], [2, 4]] times [[5, 7], [6, 8]].
LEFT, RIGHT, PRODUCT = (1, 2, 3, 4), (5, 6, 7, 8), (23, 34, 31, 46)


def find(host: Host) -> Finding:
    """Look for every copy of both libraries, and at the variables that steer them."""
    found = find_libraries(
        host,
        "cublas",
        *("libcublas", "cublas64_13", "cublas64_12", "cublas64_11"),
        *("libcublasLt", "cublasLt64_13", "cublasLt64_12", "cublasLt64_11"),
        headers=("cublas_api.h",),
        macros=("CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH", "CUBLAS_VER_BUILD"),
    )
    named = [
        replace(one, name="cublasLt") if "cublasLt" in one.soname else one
        for one in found.libraries
    ]
    # cuBLAS goes first: it speaks for the probe.
    libraries = tuple(sorted(named, key=lambda one: one.name))
    facts = environment(host, WORKSPACE, "NVIDIA_TF32_OVERRIDE", "CUBLASLT_LOG_LEVEL")
    warnings = (*found.warnings, *_pair(libraries), *_workspace(host.env(WORKSPACE)))
    return replace(found, libraries=libraries, facts=facts, warnings=warnings)


def load(opened: ctypes.CDLL, library: Library) -> Answer:
    """Ask the version; unlike cublasGetVersion this needs no handle, and so no device."""
    from mlbackends.libraries.cuda.calls import Calls, property_version

    function = "cublasLtGetProperty" if library.name == "cublasLt" else "cublasGetProperty"
    return answered(library, property_version(Calls(opened, names=STATUSES), function))


def use(opened: ctypes.CDLL, library: Library) -> Answer:
    """Multiply two matrices on the device."""
    from mlbackends.libraries.cuda.calls import Calls, expect, first_device

    call = Calls(opened, names=STATUSES)
    device = first_device(int(library.version.split(".")[0]))
    left, right, product = device.floats(*LEFT), device.floats(*RIGHT), device.floats(0, 0, 0, 0)
    multiply = _multiply_with_lt if library.name == "cublasLt" else _multiply
    multiply(call, left, right, product)
    expect("a product of matrices", device.read_floats(product, 4), PRODUCT)
    return Answer(library)


def _multiply(
    call: Calls, left: ctypes.c_void_p, right: ctypes.c_void_p, product: ctypes.c_void_p
) -> None:
    import ctypes

    handle, two, no = ctypes.c_void_p(), ctypes.c_int(2), ctypes.c_int(0)
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    call("cublasCreate_v2", ctypes.byref(handle))
    matrices = (one, left, two, right, two, zero, product, two)
    call("cublasSgemm_v2", handle, no, no, two, two, two, *matrices)


def _multiply_with_lt(
    call: Calls, left: ctypes.c_void_p, right: ctypes.c_void_p, product: ctypes.c_void_p
) -> None:
    import ctypes

    handle, operation, layout = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    kind, two, none = ctypes.c_int(REAL_32F), ctypes.c_uint64(2), ctypes.c_void_p()
    call("cublasLtCreate", ctypes.byref(handle))
    compute = ctypes.c_int(COMPUTE_32F)
    call("cublasLtMatmulDescCreate", ctypes.byref(operation), compute, kind)
    between = ctypes.c_int64(2)
    call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), kind, two, two, between)
    factors = (one, left, layout, right, layout, zero, product, layout, product, layout)
    heuristic, workspace, stream = none, (none, ctypes.c_size_t(0)), none
    call("cublasLtMatmul", handle, operation, *factors, heuristic, *workspace, stream)


def _pair(libraries: tuple[Library, ...]) -> list[Reason]:
    """Return a warning where the two that a process gets are not of one version."""
    winners = {(one.name, one.soname.rpartition(".")[2]): one for one in libraries if one.wins}
    warnings = []
    for (name, number), one in winners.items():
        other = winners.get(("cublasLt", number))
        if name != "cublas" or not other or not one.version or not other.version:
            continue
        if not agree(one.version, other.version):
            said = f"{one.path} is {one.version}, and {other.path} is {other.version}"
            warnings.append(Reason("conflict", said, "cuBLAS needs the cuBLASLt of its version"))
    return warnings


def _workspace(value: str) -> list[Reason]:
    if not value or re.fullmatch(r"(?::\d+:\d+)+", value):
        return []
    said = f"{WORKSPACE} is {value!r}; it must be pairs of :SIZE:COUNT"
    return [Reason("override-invalid", said, "set :4096:8, the smallest that is deterministic")]
