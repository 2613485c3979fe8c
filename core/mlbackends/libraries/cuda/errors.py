"""What the numbers that CUDA's functions return mean for a user.

The driver and the runtime share their numbers since CUDA 10.1; 35 is the runtime's alone.

Source: CUDA Driver API and CUDA Runtime API references, CUresult and cudaError_t.
"""

import os

from mlbackends.libraries.cuda.visible_devices import VARIABLE, hides_everything
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer

CODES = {
    "compat-unsupported": (
        "A forward-compatibility library is used, which this GPU or this driver does not allow."
    ),
    "device-unavailable": "The device is there, and another process or its mode keeps it from us.",
    "fabric-not-ready": "The NVLink fabric between the GPUs is not set up yet.",
    "mps-unreachable": "The CUDA multi-process service is asked for and does not answer.",
}

NO_DEVICE = 100

_MEANINGS = {
    34: ("stub-library", "it is the toolkit's stand-in for linking", "use the driver's own file"),
    35: (
        "driver-too-old",
        "the driver is older than this runtime needs, or is not there",
        "install a newer driver, or a runtime of an older CUDA",
    ),
    36: ("driver-too-old", "the call needs a newer driver", "install a newer driver"),
    46: (
        "device-unavailable",
        "the device is in exclusive or prohibited mode, or out of reach",
        "look at its compute mode and its processes: backends info nvidia",
    ),
    100: ("no-device", "no CUDA device is there or visible", ""),
    101: (
        "no-device",
        "a device that is asked for is not there",
        f"look for an index twice or out of range in {VARIABLE}",
    ),
    304: (
        "call-failed",
        "the operating system refused: device nodes are missing or may not be opened",
        "look at /dev/nvidia* and nvidia-uvm",
    ),
    802: (
        "fabric-not-ready",
        "the system is not ready: the fabric manager does not run, or still sets up NVLink",
        "start nvidia-fabricmanager in exactly the driver's version",
    ),
    803: (
        "driver-mismatch",
        "the kernel module and the user-space driver are of different versions",
        "reboot, or reload the nvidia kernel modules",
    ),
    804: (
        "compat-unsupported",
        "forward compatibility is not supported on this GPU",
        "take the compat folder off the loader's path, or use a data-center GPU",
    ),
    805: ("mps-unreachable", "the multi-process service does not answer", "restart the MPS daemon"),
    806: ("mps-unreachable", "the multi-process service failed", "restart the MPS daemon"),
    807: ("mps-unreachable", "the multi-process service is not ready", "wait, or restart it"),
    999: (
        "call-failed",
        "the driver does not say why",
        "look for NVRM lines in the kernel log; a missing nvidia-uvm module is a usual cause",
    ),
}


def refused(function: str, code: int, name: str = "", learned: Answer | None = None) -> NotUsable:
    """Return what to raise where a CUDA function returned something else than 0."""
    reason, meaning, hint = _MEANINGS.get(code, ("call-failed", "", ""))
    value = os.environ.get(VARIABLE)
    if code == NO_DEVICE and value is not None and hides_everything(value):
        value = value.encode(errors="replace").decode()  # a report holds text only
        hint = f'{VARIABLE} is "{value}", which hides every GPU: unset it'
    said = f"{function} returned {code}" + (f" ({name})" if name else "")
    return NotUsable(reason, f"{said}: {meaning}" if meaning else said, hint, learned)
