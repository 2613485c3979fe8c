"""What the probes in table.json ask of an opened library: load_NAME and use_NAME, if their rows list it.

Both get the caller of the opened library's functions, and the library. One that learns nothing
returns None; `use` raises NotUsable if a result is wrong. The functions are documented in the sources that
table.json names. A report of files alone imports none of this.
"""

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import Calls, ctypes, decimal_version
from mlbackends.libraries.cuda.device import expect, first_device
from mlbackends.libraries.cuda.libraries import runtime_version, versioned
from mlbackends.model.records import Answer, Device, Library, Presence, nonempty
from mlbackends_probes._findings import decode_cupti

# ---- NVIDIA --------------------------------------------------------------------------------------


def use_cublas(call: Calls, library: Library) -> None:
    """Multiply two matrices on the device: by columns, [[1, 3], [2, 4]] times [[5, 7], [6, 8]]."""
    device = first_device(int(library.version.split(".")[0]))
    left, right = device.floats(1, 2, 3, 4), device.floats(5, 6, 7, 8)
    product = device.floats(0, 0, 0, 0)
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    if library.name == "cublasLt":
        compute_32f, real_32f = 68, 0
        handle, two = call.create("cublasLtCreate"), ctypes.c_uint64(2)
        operation = call.create("cublasLtMatmulDescCreate", compute_32f, real_32f)
        stride = ctypes.c_int64(2)
        layout = call.create("cublasLtMatrixLayoutCreate", real_32f, two, two, stride)
        factors = (one, left, layout, right, layout, zero, product, layout, product, layout)
        heuristic, workspace, stream = None, (None, ctypes.c_size_t(0)), None
        call("cublasLtMatmul", handle, operation, *factors, heuristic, *workspace, stream)
    else:
        handle, as_is = call.create("cublasCreate_v2"), 0
        matrices = (one, left, 2, right, 2, zero, product, 2)
        call("cublasSgemm_v2", handle, as_is, as_is, 2, 2, 2, *matrices)
    expect("a product of matrices", device.read_floats(product, 4), (23, 34, 31, 46))


def use_cufft(call: Calls, _: Library) -> None:
    """Transform 1, 2, 3, 4 on the device: real and imaginary parts by turns."""
    device, plan, complex_to_complex, forward = first_device(), ctypes.c_int(), 0x29, -1
    numbers, result = device.floats(1, 0, 2, 0, 3, 0, 4, 0), device.floats(*[0] * 8)
    call("cufftPlan1d", ctypes.byref(plan), 4, complex_to_complex, 1)
    call("cufftExecC2C", plan, numbers, result, forward)
    transformed = (10, 0, -2, 2, -2, 0, -2, -2)
    expect("the transform of 1, 2, 3, 4", device.read_floats(result, 8), transformed)


def use_cusolver(call: Calls, _: Library) -> None:
    """Factor [[4, 2], [2, 5]] on the device; the factor is [[2, 0], [1, 2]]."""
    device, lower = first_device(), 0
    matrix, info, size = device.floats(4, 2, 2, 5), device.integers(0), ctypes.c_int()
    operand = (call.create("cusolverDnCreate"), lower, 2, matrix, 2)
    call("cusolverDnSpotrf_bufferSize", *operand, ctypes.byref(size))
    workspace = device.memory(size.value * ctypes.sizeof(ctypes.c_float))
    call("cusolverDnSpotrf", *operand, workspace, size, info)
    factor = device.read_floats(matrix, 4)
    # The third number is above the diagonal, and is not changed.
    expect("a Cholesky factor", (factor[0], factor[1], factor[3]), (2, 1, 2))


def use_cusparse(call: Calls, _: Library) -> None:
    """Gather numbers 1 and 3 of 10, 20, 30, 40 on the device."""
    device, index_32, from_zero, real_32f = first_device(), 2, 0, 0
    dense, values = device.floats(10, 20, 30, 40), device.floats(0, 0)
    four, two, places = ctypes.c_int64(4), ctypes.c_int64(2), device.integers(1, 3)
    kinds = (index_32, from_zero, real_32f)
    long = call.create("cusparseCreateDnVec", four, dense, real_32f)
    short = call.create("cusparseCreateSpVec", four, two, places, values, *kinds)
    call("cusparseGather", call.create("cusparseCreate"), long, short)
    expect("a gather", device.read_floats(values, 2), (20, 40))


def use_cusparselt(call: Calls, _: Library) -> None:
    """Let it look at the device."""
    first_device()
    # The caller brings the handle, a struct of 512 bytes in 0.10; more does no harm.
    handle = (ctypes.c_longdouble * (8192 // ctypes.sizeof(ctypes.c_longdouble)))()
    architecture_mismatch = 4
    call.require("cusparseLtInit", ctypes.byref(handle), unsupported=architecture_mismatch)


def use_curand(call: Calls, library: Library) -> Answer:
    """Draw numbers of Sobol's sequence, on the host and then on the device."""
    # The sequence is defined by mathematics; only 0 is replaced, by the smallest number above it.
    sequence, sobol32 = (0, 0.5, 0.75, 0.25, 0.375, 0.875, 0.625, 0.125), 201
    count, numbers = ctypes.c_size_t(len(sequence)), (ctypes.c_float * len(sequence))()
    on_host = call.create("curandCreateGeneratorHost", sobol32)
    call("curandGenerateUniform", on_host, numbers, count)
    expect("Sobol's sequence on the host", list(numbers), sequence)
    try:
        device = first_device()
    except NotUsable as stop:
        if stop.reason.code not in ("no-driver", "no-device"):
            raise
        return Answer(library, facts={"checked_on": "host"})
    result = device.floats(*[0] * len(sequence))
    call("curandGenerateUniform", call.create("curandCreateGenerator", sobol32), result, count)
    on_device = device.read_floats(result, len(sequence))
    expect("Sobol's sequence on the device", on_device, sequence)
    return Answer(library, facts={"checked_on": "host and device"})


def load_cutensor(call: Calls, library: Library) -> Answer:
    """Ask its version, and that of the CUDA runtime it was built with."""
    version = decimal_version(call.number("cutensorGetVersion"), 10_000)
    runtime = call.number("cutensorGetCudartVersion")
    return versioned(library, version, cuda_version=runtime_version(runtime))


def use_cutensor(call: Calls, _: Library) -> None:
    """Create a handle on the device."""
    first_device(call.number("cutensorGetCudartVersion") // 1000)
    # cuTENSOR 1 had cutensorInit, which filled a struct that the caller brought.
    call.create("cutensorCreate")


def use_cupti(call: Calls, library: Library) -> Answer | None:
    """Start to record kernels."""
    first_device()
    (number,) = call.numbers("cuptiGetVersion", 1)
    kernels = 3
    call("cuptiActivityEnable", kernels)
    version = decode_cupti(str(number))
    return versioned(library, version) if version else None


def load_nccl(call: Calls, library: Library) -> Answer:
    """Ask the version: 23007 is 2.30.7, and 2708 is 2.7.8, because 2.9 got more digits."""
    (number,) = call.numbers("ncclGetVersion", 1)
    return versioned(library, decimal_version(number, 10_000 if number >= 10_000 else 1000))


def use_nccl(call: Calls, _: Library) -> None:
    """Sum numbers over the one device."""
    device, float_32, add, stream = first_device(), 7, 0, None
    numbers, result = device.floats(1, 2, 3), device.floats(0, 0, 0)
    communicator = call.create("ncclCommInitAll", 1, (ctypes.c_int * 1)(0))
    kind = (ctypes.c_size_t(3), float_32, add)
    call("ncclAllReduce", numbers, result, *kind, communicator, stream)
    expect("a sum over one device", device.read_floats(result, 3), (1, 2, 3))


def load_nvjitlink(call: Calls, library: Library) -> Answer | None:
    """Ask the CUDA version."""
    if not call.has("nvJitLinkVersion"):
        return None
    major, minor = call.numbers("nvJitLinkVersion", 2)
    return versioned(library, f"{major}.{minor}")


def use_nvjitlink(call: Calls, _: Library) -> None:
    """Link PTX and look whether an ELF file comes of it."""
    ptx = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n"
    options, size, is_ptx = (ctypes.c_char_p * 1)(b"-arch=sm_90"), ctypes.c_size_t(), 2
    linker = call.create("nvJitLinkCreate", 1, options)
    call("nvJitLinkAddData", linker, is_ptx, ptx, ctypes.c_size_t(len(ptx) + 1), b"nothing")
    call("nvJitLinkComplete", linker)
    call("nvJitLinkGetLinkedCubinSize", linker, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value + 1)
    call("nvJitLinkGetLinkedCubin", linker, cubin)
    if cubin.raw[:4] != b"\x7fELF":
        raise NotUsable("wrong-result", "what it linked is not an ELF file")


def load_nvrtc(call: Calls, library: Library) -> Answer:
    """Ask the CUDA version and the architectures it knows."""
    version = "{}.{}".format(*call.numbers("nvrtcVersion", 2))
    if not call.has("nvrtcGetSupportedArchs"):  # it came with 11.2
        return versioned(library, version)
    (count,) = call.numbers("nvrtcGetNumSupportedArchs", 1)
    architectures = (ctypes.c_int * max(count, 1))()
    call("nvrtcGetSupportedArchs", architectures)
    capabilities = [f"{number // 10}.{number % 10}" for number in list(architectures)[:count]]
    return versioned(library, version, compute_capabilities=capabilities)


def use_nvrtc(call: Calls, _: Library) -> None:
    """Compile a kernel and look for its entry in the PTX."""
    kernel = b'extern "C" __global__ void seven(float *x) { x[threadIdx.x] = 7.0f; }'
    size, without_builtins = ctypes.c_size_t(), 7  # libnvrtc-builtins does not open
    program = call.create("nvrtcCreateProgram", kernel, b"seven.cu", 0, None, None)
    if status := call.status("nvrtcCompileProgram", program, 0, None):
        call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(max(size.value, 1))
        call("nvrtcGetProgramLog", program, log)
        code = "missing-dependency" if status == without_builtins else "call-failed"
        about = " ".join(log.value.decode(errors="replace").split())
        raise call.failed("nvrtcCompileProgram", status, code, about)
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, ptx)
    if b".entry seven" not in ptx.value:
        raise NotUsable("wrong-result", "the PTX of a kernel named seven has no entry of that name")


def load_nvshmem(call: Calls, library: Library) -> Answer | None:
    """Ask the version."""
    name = "nvshmemx_vendor_get_version_info"  # its result is void
    if not call.has(name):
        return None
    numbers = [ctypes.c_int(-1) for _ in range(3)]
    call.status(name, *map(ctypes.byref, numbers))
    return versioned(library, ".".join(str(number.value) for number in numbers))


# ---- AMD -----------------------------------------------------------------------------------------


def load_rocblas(call: Calls, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    text = ctypes.create_string_buffer(256)
    call("rocblas_get_version_string", text, ctypes.c_size_t(len(text)))
    return Answer(replace(library, version=text.value.decode(errors="replace").strip()))


def use_rocblas(call: Calls, _: Library) -> None:
    """Multiply two small matrices on the first GPU; HIP comes with rocBLAS, which links to it."""
    # [[1, 2], [3, 4]] times [[5, 6], [7, 8]], by columns.
    operands, product = (ctypes.c_float * 8)(1, 3, 2, 4, 5, 7, 6, 8), (ctypes.c_float * 4)()
    size, as_it_is, to_device, to_host = 16, 111, 1, 2
    handle = call.create("rocblas_create_handle")
    memory = call.create("hipMalloc", ctypes.c_size_t(3 * size))
    call("hipMemcpy", memory, operands, ctypes.c_size_t(2 * size), to_device)
    left, right, out = (ctypes.c_void_p((memory.value or 0) + part * size) for part in range(3))
    one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
    sizes = (as_it_is, as_it_is, 2, 2, 2)
    call("rocblas_sgemm", handle, *sizes, one, left, 2, right, 2, zero, out, 2)
    call("hipMemcpy", product, out, ctypes.c_size_t(size), to_host)
    call("hipFree", memory)
    call("rocblas_destroy_handle", handle)
    require_equal("rocblas_sgemm", list(product), [19.0, 43.0, 22.0, 50.0])


def use_hipblaslt(call: Calls, library: Library) -> Answer:
    """Make a handle on the first GPU, ask it for the version, and give it back."""
    version, handle = ctypes.c_int(), call.create("hipblasLtCreate")
    call("hipblasLtGetVersion", handle, ctypes.byref(version))
    call("hipblasLtDestroy", handle)
    return Answer(replace(library, version=decimal_version(version.value, 100_000)))


def load_miopen(call: Calls, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    parts = (ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t())
    call("miopenGetVersion", *map(ctypes.byref, parts))
    return Answer(replace(library, version=".".join(str(part.value) for part in parts)))


def use_miopen(call: Calls, _: Library) -> None:
    """Make a handle on the first GPU, and give it back."""
    call("miopenDestroy", call.create("miopenCreate"))


#: RCCL has the functions of NCCL.
load_rccl = load_nccl

# ---- other accelerators --------------------------------------------------------------------------


def load_tpu(call: Calls, library: Library) -> Answer:
    """Ask for the version of the PJRT interface, which takes no chip."""
    call.opened.GetPjrtApi.restype = ctypes.c_void_p
    table = call.opened.GetPjrtApi()
    if not table:
        raise NotUsable("call-failed", "GetPjrtApi returned no table of functions")
    version_at = 4  # its own two words and two of its version come first
    words = ctypes.cast(table, ctypes.POINTER(ctypes.c_size_t))
    if words[0] < (version_at + 1) * 8:
        return Answer(library)
    numbers = ctypes.cast(table + version_at * 8, ctypes.POINTER(ctypes.c_int))
    return Answer(library, facts={"pjrt_api_version": f"{numbers[0]}.{numbers[1]}"})


def use_ascend(call: Calls, library: Library) -> Answer:
    """Count the devices, then fill memory on the first and read it back."""
    repeated, no_device, to_host, limit = 100002, (107001, 507000, 507008, 507033), 2, 64
    if (status := call.status("aclInit", None)) not in (0, repeated):
        raise call.failed("aclInit", status)
    count = ctypes.c_uint32()
    status = call.status("aclrtGetDeviceCount", ctypes.byref(count))
    if status in no_device or (not status and not count.value):
        message = f"aclrtGetDeviceCount returned {status} and {count.value} devices"
        raise NotUsable("no-device", message)
    if status:
        raise call.failed("aclrtGetDeviceCount", status)
    size, back = ctypes.c_size_t(4096), ctypes.create_string_buffer(4096)
    call("aclrtSetDevice", 0)
    memory = call.create("aclrtMalloc", size, 0)
    call("aclrtMemset", memory, size, 0x5A, size)
    call("aclrtMemcpy", back, size, memory, size, to_host)
    call("aclrtFree", memory)
    call.require_filled("NPU 0", back.raw, b"\x5a")
    soc = call.text("aclrtGetSocName")
    call.opened.aclrtResetDevice(0)
    call.opened.aclFinalize()
    found = range(min(count.value, limit))
    devices = [Device("npu", i, presence=Presence.LOADABLE, capability=soc) for i in found]
    devices[0] = replace(devices[0], presence=Presence.USABLE)
    return Answer(library, tuple(devices), nonempty({"checked_device": 0, "soc": soc}))
