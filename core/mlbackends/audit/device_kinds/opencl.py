"""Devices of OpenCL."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Need, Shown

KIND = "opencl"
DEVICES = ("opencl",)
PROBES = ("opencl",)

LIMITS = (
    Limit(
        "float64",
        Concern.DTYPE,
        "double is optional in OpenCL; the device's compiler refuses kernels that have it.",
        "OpenCL specification, CL_DEVICE_DOUBLE_FP_CONFIG; extension cl_khr_fp64",
        (Need("float64 of OpenCL"),),
    ),
)

FEATURES: tuple[Feature, ...] = ()

SHOWN = (Shown("platforms", "opencl.platforms"), Shown("drivers", "opencl.drivers"))
