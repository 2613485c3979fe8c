"""Intel Gaudi accelerators."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Shown

KIND = "hpu"
DEVICES = ("gaudi",)
PROBES = ("gaudi", "limits")

_MATRIX = "Intel Gaudi documentation, PyTorch Support Matrix"

LIMITS = (
    Limit(
        "TorchScript",
        Concern.OPERATION,
        "torch.jit does not run on it.",
        _MATRIX,
    ),
    Limit(
        "torch.compile(backend='inductor')",
        Concern.OPERATION,
        "The backend is hpu_backend; the GPU Migration Toolkit turns the one into the other.",
        _MATRIX,
    ),
    Limit(
        "ONNX",
        Concern.OPERATION,
        "Models cannot be exported from it to ONNX.",
        _MATRIX,
    ),
    Limit(
        "HPU graphs in eager mode",
        Concern.OPERATION,
        "They are there with PT_HPU_LAZY_MODE=1 alone.",
        _MATRIX,
    ),
)

FEATURES: tuple[Feature, ...] = ()

SHOWN = (
    Shown("driver", "gaudi.driver_version"),
    Shown("plugin of torch", "gaudi.torch_plugin"),
    Shown("variables", "gaudi.environment"),
    Shown("memory that a process may lock", "limits.locked_memory_limit_bytes"),
)
