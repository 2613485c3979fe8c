"""Devices by the names that people type, so that a problem can be explained for one that is not here.

`cpu` and `cuda` are this machine's own; named_devices.json holds the others, each with its source.
"""

import os

import msgspec
from msgspec import Struct

from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.records import Device, Presence

HERE = {"cpu": "this machine's processors", "cuda": "this machine's first CUDA device"}


class NamedDevice(Struct, frozen=True):
    """A device with a name. title: which one it is. source: of its record; "" for one of this machine."""

    name: str
    device: Device
    title: str
    source: str = ""

    @property
    def here(self) -> bool:
        """Whether it is this machine's own."""
        return not self.source


with open(os.path.join(os.path.dirname(__file__), "named_devices.json"), "rb") as _file:
    _ROWS = msgspec.json.decode(_file.read(), type=tuple[NamedDevice, ...])
NAMED = {row.name: row for row in _ROWS}
"""Every device that needs not be here."""

NAMES = (*HERE, *NAMED)
"""Every name that `device` takes."""


def check_name(name: str) -> None:
    """Raise UnknownName, with the nearest name, for an unknown device."""
    if name not in HERE and name not in NAMED:
        raise UnknownName("device", name, NAMES, "backends sdpa list --devices")


def device(name: str) -> NamedDevice:
    """Return a device by its name.

    Raises UnknownName as `check_name` does, and BadInput for "cuda" where this machine has no such device.
    """
    check_name(name)
    if name in NAMED:
        return NAMED[name]
    if name == "cpu":
        return NamedDevice(name, Device("cpu", 0), HERE[name])
    from mlbackends.host.host import Host
    from mlbackends.survey import survey

    # The driver is loaded in a child process.
    report = survey(("cuda_driver",), Host("/"), Presence.LOADABLE, timeout=5.0)
    probe = report.probes["cuda_driver"]
    found = next((each for each in probe.devices if each.capability), None)
    if found is None:
        because = f": {probe.reasons[0].message}" if probe.reasons else ""
        hint = "a device that is not here is asked about by its name, such as --device sm90"
        raise BadInput(f"this machine has no CUDA device{because}", hint)
    return NamedDevice(name, found, HERE[name])
