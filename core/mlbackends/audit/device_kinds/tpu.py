"""Google TPUs."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Shown

KIND = "tpu"
DEVICES = ("tpu",)
PROBES = ("tpu", "jax", "limits")

LIMITS = (
    Limit(
        "complex128",
        Concern.DTYPE,
        "It raises an error; torch_xla has every other type that torch and XLA share.",
        "PyTorch/XLA, pull request 6197",
    ),
)

FEATURES: tuple[Feature, ...] = ()

SHOWN = (
    Shown("generation", "tpu.generation"),
    Shown("chips", "tpu.chip_count"),
    Shown("JAX", "jax.version"),
    Shown("variables", "tpu.environment"),
    Shown("memory that a process may lock", "limits.locked_memory_limit_bytes"),
)
