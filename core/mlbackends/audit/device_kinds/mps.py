"""Apple GPUs through Metal Performance Shaders."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Need, Shown

KIND = "mps"
DEVICES = ("mps",)
PROBES = ("mps", "accelerate", "torch")

_TYPES = "PyTorch, aten/src/ATen/native/mps/OperationUtils.mm, getMPSDataType"
_EMPTY = "PyTorch, aten/src/ATen/mps/EmptyTensor.cpp"
_SONOMA = (Need("macOS", "14.0"),)

LIMITS = (
    Limit(
        "float64",
        Concern.DTYPE,
        "Metal has no double: a tensor on mps cannot be of it, and .to('mps') raises TypeError.",
        f"{_EMPTY}; Metal Shading Language Specification, scalar data types",
    ),
    Limit(
        "complex128",
        Concern.DTYPE,
        "Metal has no double, so there is no complex number of two.",
        _TYPES,
    ),
    Limit(
        "bfloat16",
        Concern.DTYPE,
        "A tensor on mps cannot be of it: TypeError.",
        f"{_EMPTY}; PyTorch issue 119641",
        _SONOMA,
    ),
    Limit(
        "complex64",
        Concern.DTYPE,
        "A tensor on mps cannot be of it: TypeError.",
        f"{_TYPES}, checkSupportsComplex",
        _SONOMA,
    ),
    Limit(
        "complex32",
        Concern.DTYPE,
        "A tensor on mps cannot be of it: TypeError.",
        f"{_TYPES}, checkSupportsComplex",
        _SONOMA,
    ),
    *(
        Limit(
            name,
            Concern.DTYPE,
            "A tensor on mps cannot be converted to it: TypeError.",
            f"{_TYPES}; ComfyUI issue 6995",
        )
        for name in ("float8_e4m3fn", "float8_e5m2")
    ),
    Limit(
        "cumsum of int64",
        Concern.OPERATION,
        "It raises RuntimeError.",
        "PyTorch 2.0, aten/src/ATen/native/mps/operations/UnaryOps.mm",
        (Need("macOS", "13.3"),),
    ),
    Limit(
        "min and max of int64",
        Concern.OPERATION,
        "They are computed in int32 or float32, with a warning.",
        "PyTorch 2.0, aten/src/ATen/native/mps/operations/ReduceOps.mm",
        (Need("macOS", "13.3"),),
    ),
    Limit(
        "isin of integers",
        Concern.OPERATION,
        "It takes floating types only.",
        "PyTorch, aten/src/ATen/native/mps/operations/TensorCompare.mm",
        _SONOMA,
    ),
    Limit(
        "operators without a Metal kernel",
        Concern.OPERATION,
        "They raise NotImplementedError; with PYTORCH_ENABLE_MPS_FALLBACK=1 they run on the CPU.",
        "PyTorch, MPS environment variables",
    ),
    Limit(
        "torch 2.10 and newer",
        Concern.SYSTEM,
        "They have no MPS there; older ones need macOS 12.3.",
        "PyTorch issue 164943",
        _SONOMA,
    ),
    Limit(
        "torch 2.3 and newer",
        Concern.SYSTEM,
        "No wheel of them has MPS for an Intel Mac; 2.2 was the last.",
        "PyTorch dev-discuss, macOS x86 builds deprecation, January 2024",
        (Need("Apple silicon"),),
    ),
    Limit(
        "more than one device",
        Concern.SYSTEM,
        "torch.mps.device_count() is 0 or 1: Metal's default device alone is used.",
        "PyTorch 2.13, torch.mps.device_count",
    ),
)

FEATURES = (
    Feature(
        "unified memory",
        "GPU and CPU share one memory, so nothing is gained by pinning it.",
        "Apple Metal, MTLDevice.hasUnifiedMemory",
        (Need("one memory of GPU and CPU"),),
    ),
    Feature(
        "Metal 3",
        "Metal 3's functions.",
        "Apple Metal, MTLGPUFamily.metal3",
        (Need("Metal family", one_of=("Metal3", "Metal4")),),
    ),
    Feature(
        "Metal 4",
        "Tensors and machine learning in shaders.",
        "Apple Metal, MTLGPUFamily.metal4",
        (Need("Metal family", one_of=("Metal4",)),),
    ),
)

SHOWN = (
    Shown("chip", "mps.chip"),
    Shown("macOS", "mps.macos_version"),
    Shown("memory that Metal advises", "mps.recommended_memory_bytes"),
    Shown("families", "mps.families"),
    Shown("variables", "mps.environment"),
    Shown("torch", "torch.version"),
    Shown("BLAS and LAPACK of the CPU", "accelerate.libraries"),
)
