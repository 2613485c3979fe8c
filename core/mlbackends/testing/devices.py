"""The kinds of devices that a test can run on, and which of them are usable here."""

from collections.abc import Sequence
from typing import NamedTuple

from mlbackends.base.errors import UnknownName
from mlbackends.model.records import Device, Presence
from mlbackends.testing.machine import Machine

#: The kinds, and the probes that report each; the last one computes on it.
PROBES: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "cuda": ("nvidia", "cuda_driver"),
    "rocm": ("rocm",),
    "xpu": ("xpu",),
    "mps": ("mps",),
}

_OF_KIND = {"cuda": ("cuda", "mig")}
_TORCH_NAMES = {"rocm": "cuda"}


class Choice(NamedTuple):
    """A device that a test runs on, or why it cannot.

    name: its kind, with its number where that was asked for. why: why it is not usable, "" if it is.
    """

    name: str
    why: str = ""


def torch_device(name: str) -> str:
    """Return what torch calls a device: "cuda" in a build for ROCm."""
    kind, colon, index = name.partition(":")
    return f"{_TORCH_NAMES.get(kind, kind)}{colon}{index}"


def check_name(name: str) -> None:
    """Raise UnknownName, with the nearest name, for anything but KIND or KIND:NUMBER."""
    kind, colon, index = name.partition(":")
    if kind not in PROBES or (colon and not index.isdecimal()):
        raise UnknownName("device", name, tuple(PROBES))


def choices(machine: Machine, requested: Sequence[str], marked: Sequence[str] | None) -> list[Choice]:
    """Return the devices for a test: what can be used, and what was requested and cannot be.

    requested: on the command line, () for all. marked: by the test itself, None for all.
    """
    if marked is None and not requested:
        return [Choice(kind) for kind in PROBES if not why_unusable(machine, kind)]
    names = requested or marked or ()
    if marked is not None and requested:
        names = [name for name in requested if {name, name.partition(":")[0]} & set(marked)]
        if not names:
            kinds = " and ".join(marked), " and ".join(requested)
            why = f"this test is for {kinds[0]}; {kinds[1]} was requested"
            return [Choice(marked[0] if marked else "none", why)]
    return [Choice(name, why_unusable(machine, name)) for name in dict.fromkeys(names)]


def why_unusable(machine: Machine, name: str) -> str:
    """Return why a device is not usable, as far as was looked; "" if it is."""
    kind, _, index = name.partition(":")
    if not PROBES[kind]:
        return "" if index in ("", "0") else f"{name}: there is one {kind}"
    if device_of(machine, name) is not None:
        return ""
    report = machine.report(PROBES[kind])
    probes = [report.probes[probe] for probe in PROBES[kind]]
    if usable := _usable(machine, kind):
        numbers = ", ".join(str(device.index) for device in usable)
        return f"{name} is not usable: {kind} devices that are: {numbers}"
    probe = next((probe for probe in probes if probe.presence in (None, Presence.ABSENT)), probes[-1])
    if probe.failure:
        return f"{name} is not usable: it could not be determined: {probe.failure.message}"
    reasons = [*probe.reasons, *(reason for device in probe.devices for reason in device.reasons)]
    why = reasons[0].message if reasons else f"no {kind} device was seen to work"
    return f"{name} is not usable: {why}"


def device_of(machine: Machine, name: str) -> Device | None:
    """Return the record of a usable device, the first of its kind where no number is given."""
    kind, _, index = name.partition(":")
    if not PROBES[kind]:
        return Device("cpu", 0, presence=Presence.USABLE)
    numbered = (device for device in _usable(machine, kind) if not index or device.index == int(index))
    return next(numbered, None)


def _usable(machine: Machine, kind: str) -> list[Device]:
    """Return the devices of a kind that reached the presence that was tried; none where a probe sees none."""
    report = machine.report(PROBES[kind])
    probes = [report.probes[name] for name in PROBES[kind]]
    if any(probe.presence in (None, Presence.ABSENT) for probe in probes):
        return []
    if report.depth is not Presence.FOUND:
        probes = probes[-1:]
    elif any(probe.reasons for probe in probes):  # such as a GPU without its driver's library
        return []
    kinds = _OF_KIND.get(kind, (kind,))
    devices = next((probe.devices for probe in reversed(probes) if probe.devices), ())
    return [
        device
        for device in devices
        if device.kind in kinds and device.presence.level >= report.depth.level and not device.reasons
    ]
