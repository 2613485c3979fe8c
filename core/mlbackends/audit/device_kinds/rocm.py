"""AMD GPUs through ROCm and HIP."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Need, Shown

KIND = "rocm"
DEVICES = ("rocm",)
PROBES = ("rocm", "rocblas", "hipblaslt", "limits", "memory")

_PRECISION = "ROCm documentation, Data types and precision support"
_LT = "hipBLASLt documentation, Data type support"
_FNUZ = ("gfx942",)
_OCP = ("gfx950", "gfx1200", "gfx1201")
_ATTENTION = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


def _on(*targets: str) -> tuple[Need, ...]:
    return (Need("gfx target", one_of=targets),)


LIMITS = (
    Limit(
        "float8_e4m3fnuz",
        Concern.DTYPE,
        "Matrix cores do not take this format, which is that of the MI300.",
        f"{_LT}; {_PRECISION}",
        _on(*_FNUZ),
    ),
    Limit(
        "float8_e5m2fnuz",
        Concern.DTYPE,
        "Matrix cores do not take this format, which is that of the MI300.",
        f"{_LT}; {_PRECISION}",
        _on(*_FNUZ),
    ),
    Limit(
        "float8_e4m3fn",
        Concern.DTYPE,
        "Matrix cores do not take the format of the Open Compute Project; the MI300 has its own, fnuz.",
        f"{_LT}; {_PRECISION}",
        _on(*_OCP),
    ),
    Limit(
        "float8_e5m2",
        Concern.DTYPE,
        "Matrix cores do not take the format of the Open Compute Project; the MI300 has its own, fnuz.",
        f"{_LT}; {_PRECISION}",
        _on(*_OCP),
    ),
    Limit(
        "torch._scaled_mm",
        Concern.OPERATION,
        "torch refuses products of 8-bit floats on this GPU.",
        "PyTorch 2.13, torch/testing/_internal/common_cuda.py, evaluate_platform_supports_fp8",
        _on("gfx94*", "gfx95*", "gfx120*"),
    ),
    Limit(
        "TF32 in products of float32",
        Concern.OPERATION,
        "allow_tf32 and fp32_precision change nothing.",
        "PyTorch 2.13, torch.cuda.is_tf32_supported",
        _on("gfx94*", "gfx95*"),
    ),
    Limit(
        "flash and memory-efficient attention of torch",
        Concern.OPERATION,
        "AOTriton has no kernels, so scaled_dot_product_attention takes the mathematical way."
        " TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1 adds gfx1101, gfx1102, gfx1150, gfx1151 and gfx1200.",
        "PyTorch 2.13, torch/testing/_internal/common_cuda.py, evaluate_gfx_arch_within",
        _on(*_ATTENTION),
    ),
)


def _attribute(word: str) -> Need:
    return Need("HIP attribute", one_of=(word,))


def _source(name: str) -> str:
    return f"HIP runtime API, hipDeviceAttribute{name}"


FEATURES = (
    Feature(
        "stream-ordered allocation",
        "hipMallocAsync and memory pools: memory is given and taken back in a stream's order.",
        _source("MemoryPoolsSupported"),
        (_attribute("memory-pools"),),
    ),
    Feature(
        "virtual memory management",
        "hipMemAddressReserve and hipMemMap: addresses and memory are given apart.",
        _source("VirtualMemoryManagementSupported"),
        (_attribute("virtual-memory-management"),),
    ),
    Feature(
        "graph capture",
        "What a stream is given can be captured and started again as one: torch.cuda.graph.",
        "PyTorch, aten/src/ATen/cuda/CUDAGraph.cpp: ROCm 5.3",
        (Need("HIP runtime", "5.3"),),
    ),
    Feature(
        "unified memory",
        "hipMallocManaged: one pointer for host and device.",
        _source("ManagedMemory"),
        (_attribute("managed-memory"),),
    ),
    Feature(
        "unified memory used by both at once",
        "Host and device can touch managed memory at the same time.",
        _source("ConcurrentManagedAccess"),
        (_attribute("concurrent-managed-access"),),
    ),
    Feature(
        "memory of malloc",
        "The device reads what malloc gave, without registration (it needs XNACK).",
        _source("PageableMemoryAccess"),
        (_attribute("pageable-memory-access"),),
    ),
    Feature(
        "pinned memory under one address",
        "Registered memory has the same address on host and device.",
        _source("CanUseHostPointerForRegisteredMem"),
        (_attribute("host-pointer-for-registered-memory"),),
    ),
    Feature(
        "all memory of the GPU on PCI",
        "A large BAR: the host, and other GPUs, reach all memory of the device.",
        _source("IsLargeBar"),
        (_attribute("large-bar"),),
    ),
    Feature(
        "cooperative launch",
        "All blocks of a kernel can wait for each other.",
        _source("CooperativeLaunch"),
        (_attribute("cooperative-launch"),),
    ),
)

SHOWN = (
    Shown("targets", "rocm.targets"),
    Shown("HIP runtime", "rocm.runtime_version"),
    Shown("variables", "rocm.environment"),
    Shown("BLAS", "rocblas.libraries"),
    Shown("BLAS of matrix cores", "hipblaslt.libraries"),
    Shown("memory that a process may lock", "limits.locked_memory_limit_bytes"),
    Shown("it may lock any amount", "memory.locked_memory_unlimited"),
)
