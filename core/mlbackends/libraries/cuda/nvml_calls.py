"""Calling NVML: on the very file that was opened, with each refusal told apart.

nvidia-ml-py knows every structure and constant; by itself it would load whatever libnvidia-ml.so.1
the loader finds, so `bound` points it at ours. A function that is missing, not supported or not
permitted tells nothing; errors after which a GPU answers no more are raised as GpuGone.

Source: NVML API reference, nvmlReturn_t.
"""

import sys
from typing import TYPE_CHECKING, Any

from mlbackends.model.reasons import NotUsable

if TYPE_CHECKING:
    import ctypes

NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""What NVML writes where it has no value."""

_REFUSALS = {
    4: ("permission-denied", "this user may not ask", "look at the rights of /dev/nvidiactl"),
    9: ("no-driver", "the nvidia kernel module is not loaded", "load it, or install the driver"),
    10: ("timed-out", "the driver did not answer in its own time limit", ""),
    12: ("missing-dependency", "a library that NVML opens is not there", ""),
    13: ("missing-symbol", "the library lacks the function", ""),
    15: ("gpu-lost", "the GPU fell off the bus", "power-cycle the machine; look for Xid 79"),
    16: ("reset-required", "the GPU must be reset", "nvidia-smi --gpu-reset, or reboot"),
    17: ("access-lost", "the operating system or a cgroup refused", "restart the container"),
    18: (
        "driver-mismatch",
        "the kernel module and the library are of different versions",
        "reboot, or reload the nvidia kernel modules",
    ),
    28: ("no-device", "no GPU was found", ""),
    999: ("access-lost", "the driver does not say why", "restart the container, or reboot"),
}
_SILENT = (10, 11, 15, 16, 17, 999)
"""Errors after which a GPU is not asked on."""


def bound(opened: "ctypes.CDLL") -> Any:
    """Return nvidia-ml-py, using the library that was opened and no other."""
    import pynvml

    # The functions live in another module where the package of the old name is installed as well.
    sys.modules[pynvml.nvmlInit.__module__].nvmlLib = opened  # type: ignore[attr-defined]
    return pynvml


def refused(function: str, code: int) -> NotUsable:
    """Return what to raise where a function of NVML returned an error."""
    reason, meaning, hint = _REFUSALS.get(code, ("call-failed", "", ""))
    said = f"{function} returned {code}"
    return NotUsable(reason, f"{said}: {meaning}" if meaning else said, hint)


def must(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call a function without which nothing can be told; raise NotUsable where it fails."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        raise refused(function, error.value) from None


def told(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what a function says, None where it cannot tell; raises GpuGone for a lost GPU."""
    try:
        value = getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        if error.value in _SILENT:
            raise GpuGone(function, error.value) from None
        return None
    except (AttributeError, ValueError):
        # An nvidia-ml-py that is older than the function; a name that is no UTF-8.
        return None
    return None if value in NOT_AVAILABLE else value


def told_by_system(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what a function that asks no GPU says, None where it cannot tell."""
    try:
        return told(nvml, function, *arguments)
    except GpuGone:
        return None


class GpuGone(Exception):
    """A GPU does not answer any more."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(function)
        self.reason = refused(function, code).reason


def text_of(structure: Any, field: str) -> str:
    """Return a text field of one of nvidia-ml-py's structures, "" where it is no UTF-8."""
    try:
        value = getattr(structure, field)
        return value.decode() if isinstance(value, bytes) else str(value)
    except ValueError:
        return ""
