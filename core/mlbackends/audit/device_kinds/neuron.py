"""AWS Trainium and Inferentia."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Shown

KIND = "neuron"
DEVICES = ("neuron",)
PROBES = ("neuron", "limits")

_ERRORS = "AWS Neuron documentation, compiler error"

LIMITS = (
    *(
        Limit(
            name,
            Concern.DTYPE,
            "The compiler refuses it; compute with real and imaginary parts, or on the CPU.",
            f"{_ERRORS} NCC_EVRF004",
        )
        for name in ("complex64", "complex128")
    ),
    *(
        Limit(
            name,
            Concern.DTYPE,
            "The compiler refuses this format of AMD's.",
            f"{_ERRORS} NCC_EVRF005",
        )
        for name in ("float8_e4m3fnuz", "float8_e5m2fnuz")
    ),
    Limit(
        "float4_e2m1fn_x2",
        Concern.DTYPE,
        "The compiler makes no code for it.",
        f"{_ERRORS} NCC_ESPP004",
    ),
    Limit(
        "dynamic shapes",
        Concern.OPERATION,
        "Every dimension must be known when it is compiled; torch.compile needs dynamic=False.",
        f"{_ERRORS} NCC_EMOD025",
    ),
)

FEATURES: tuple[Feature, ...] = ()

SHOWN = (
    Shown("devices", "neuron.device_count"),
    Shown("driver", "neuron.driver_version"),
    Shown("wheels", "neuron.wheels"),
    Shown("variables", "neuron.environment"),
)
