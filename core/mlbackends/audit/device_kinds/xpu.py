"""Intel GPUs through Level Zero."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Need, Shown

KIND = "xpu"
DEVICES = ("xpu",)
PROBES = ("xpu", "mkl", "limits")

_KNOWN = "Intel Extension for PyTorch, Known issues: FP64 on Arc A-series and Flex"
_MODULE = "Level Zero specification, ze_device_module_flag_t"
_ACCESS = "Level Zero specification, ze_device_memory_access_properties_t"


def _property(word: str) -> tuple[Need, ...]:
    return (Need("Level Zero property", one_of=(word,)),)


LIMITS = (
    Limit(
        "float64",
        Concern.DTYPE,
        "A kernel that needs it stops with an error. Arc A-series and Flex GPUs do not have it.",
        f"{_KNOWN}; {_MODULE}, FP64",
        _property("fp64"),
    ),
    Limit(
        "complex128",
        Concern.DTYPE,
        "It is two of float64.",
        f"{_KNOWN}; {_MODULE}, FP64",
        _property("fp64"),
    ),
    Limit(
        "float16",
        Concern.DTYPE,
        "The GPU does not compute in it.",
        f"{_MODULE}, FP16",
        _property("fp16"),
    ),
    Limit(
        "atomic operations on 64-bit integers",
        Concern.OPERATION,
        "Kernels cannot have them.",
        f"{_MODULE}, INT64_ATOMICS",
        _property("int64-atomics"),
    ),
)

FEATURES = (
    Feature(
        "8-bit dot products",
        "DP4A: four products are added at once.",
        f"{_MODULE}, DP4A",
        _property("dp4a"),
    ),
    Feature(
        "pinned memory",
        "Host allocations that the GPU reads by itself.",
        f"{_ACCESS}, hostAllocCapabilities",
        _property("host-allocations"),
    ),
    Feature(
        "unified memory",
        "Shared allocations: one pointer, and pages move between host and device.",
        f"{_ACCESS}, sharedSingleDeviceAllocCapabilities",
        _property("shared-allocations"),
    ),
    Feature(
        "unified memory of several devices",
        "Shared allocations that several devices can touch.",
        f"{_ACCESS}, sharedCrossDeviceAllocCapabilities",
        _property("shared-allocations-across-devices"),
    ),
    Feature(
        "memory of malloc",
        "The device reads what malloc gave, without registration.",
        f"{_ACCESS}, sharedSystemAllocCapabilities",
        _property("shared-system-memory"),
    ),
    Feature(
        "page faults",
        "The GPU fetches pages when it needs them.",
        "Level Zero specification, ze_device_property_flag_t, ONDEMANDPAGING",
        _property("on-demand-paging"),
    ),
    Feature(
        "error correction",
        "The GPU's memory corrects errors.",
        "Level Zero specification, ze_device_property_flag_t, ECC",
        _property("ecc"),
    ),
)

SHOWN = (
    Shown("kernel driver", "xpu.driver"),
    Shown("variables", "xpu.environment"),
    Shown("BLAS and LAPACK", "mkl.libraries"),
    Shown("memory that a process may lock", "limits.locked_memory_limit_bytes"),
)
