"""Metal on macOS, as the probe `mps` found it."""

import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from mlbackends.switches import availability
from mlbackends.switches.modules import install

if TYPE_CHECKING:
    from mlbackends.model.records import ProbeReport

__all__ = [
    "get_core_count", "get_name", "is_available", "is_built", "is_macos13_or_newer", "is_macos_or_newer",
]  # fmt: skip


def is_built() -> bool:
    """Return whether this library has kernels for Metal: no."""
    return False


@lru_cache
def is_available() -> bool:
    """Return whether a Metal device computed a correct result."""
    return availability.is_available("mps")


@lru_cache
def is_macos_or_newer(major: int, minor: int) -> bool:
    """Return whether this is macOS `major.minor` or newer. Raises RuntimeError on other systems."""
    system = str(sys.platform)
    if system != "darwin":
        raise RuntimeError(f"Cannot execute is_macos_or_newer() without MPS backend; this is {system}")
    import platform

    found = [int(part) for part in platform.mac_ver()[0].split(".")[:2] if part.isdecimal()]
    return [*found, 0, 0][:2] >= [major, minor]


@lru_cache
def is_macos13_or_newer(minor: int = 0) -> bool:
    """Return whether this is macOS 13.`minor` or newer. Raises RuntimeError on other systems."""
    return is_macos_or_newer(13, minor)


@lru_cache
def get_name() -> str:
    """Return the name of the Metal device. Raises AttributeError where there is none, as torch does."""
    return _device().devices[0].name


@lru_cache
def get_core_count() -> int:
    """Return the number of the GPU's cores, of 16 execution units each.

    Raises AttributeError without a Metal device, RuntimeError if it does not report the number.
    """
    facts = _device().devices[0].facts
    count = facts.get("cores", facts.get("core_count"))
    if not isinstance(count, int):
        raise RuntimeError("this Metal device does not report the number of its cores")  # noqa: TRY004
    return count


def _device() -> "ProbeReport":
    report = availability.used_report("mps")
    if not report.devices:
        raise AttributeError("this machine has no Metal device; see `backends info mps`")
    return report


install(__name__, "_MpsModule")
