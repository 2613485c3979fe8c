"""Devices by the names that people type, so that a problem can be explained for one that is not here.

`cpu` and `cuda` are this machine's own; named_devices.json holds the others, each with its source.
"""

import re

import msgspec
from msgspec import Struct

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.tables import table
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


class _Row(Struct, frozen=True):
    """A row of the table. products: a pattern of what is sold, in small letters without blanks."""

    name: str
    device: Device
    title: str
    source: str
    products: str = ""


_ROWS = msgspec.convert(table("sdpa/named_devices"), tuple[_Row, ...])
#: Every device that needs not be here.
NAMED = {row.name: NamedDevice(row.name, row.device, row.title, row.source) for row in _ROWS}

_LONGEST = 100
#: A context takes some hundred milliseconds on each of many devices, and seconds without persistence mode.
_DRIVER_SECONDS = 30.0
_LIST = "backends sdpa list --devices"
#: Every name that `device` takes.
NAMES = (*HERE, *NAMED)


_MAKERS = re.compile("(?:nvidia|geforce|tesla|quadro|amd|radeon|instinct|apple)*")
#: What may stand behind a product's name, and changes nothing that the rules ask for.
_REST = (
    "(?:ti|d|super|xtx?|gre|maxq?|ultra|laptop|gpu|generation|server|workstation|edition"
    "|sxm[0-9]?|pcie|nvl|oam|hbm[0-9]?e?|[0-9]+gb)*"
)


def canonical(name: str) -> str:
    """Return the name of NAMES, or "cuda:N", for what people type: sm_90, cuda:sm90, 9.0, h100, RTX 4090.

    So also for what drivers print, "NVIDIA H100 80GB HBM3". Raises UnknownName, with the nearest.
    """
    text = name.lower().strip()
    if text in NAMES or re.fullmatch("cuda:[0-9]{1,3}", text):
        return "cuda" if text == "cuda:0" else text
    text = re.sub(r"^(?:cuda|rocm|hip)[:\s]+", "", text)
    short = re.sub(r"[\s_]", "", text)
    if short.startswith("gfx"):  # gfx90a:sramecc+:xnack-
        short = short.partition(":")[0]
    number = re.fullmatch(r"(?:sm|compute)?([0-9]{1,2})\.?([0-9])[af]?", short)
    for each in (short, f"sm{number[1]}{number[2]}" if number else ""):
        if each in NAMED:
            return each
    product = _MAKERS.sub("", re.sub("[^a-z0-9]", "", text[:_LONGEST]), 1)
    for row in _ROWS:
        if row.products and re.fullmatch(f"(?:{row.products}){_REST}", product):
            return row.name
    letters = re.match("[a-z]*", text)
    alike = tuple(each for each in NAMES if letters and letters[0] and each.startswith(letters[0]))
    error = UnknownName("device", name, alike, _LIST)
    if not error.hint.startswith("did"):
        error.hint = f"`{_LIST}` has them all"
        if name.lower().lstrip().startswith("cuda:"):
            error.hint += "; cuda:1 is this machine's second CUDA device"
    raise error


def device(name: str) -> NamedDevice:
    """Return a device by any of its names.

    Raises UnknownName as `canonical` does, BadInput for "cuda" where this machine has no such device.
    """
    name = canonical(name)
    if name in NAMED:
        return NAMED[name]
    if name == "cpu":
        return NamedDevice(name, Device("cpu", 0), HERE[name])
    index = int(name.partition(":")[2] or 0)
    from mlbackends.host.host import Host
    from mlbackends.survey import survey

    # The driver is asked in a child process; what it says of devices comes with a check that they compute.
    report = survey(("cuda_driver",), Host("/"), Presence.USABLE, timeout=_DRIVER_SECONDS)
    probe = report.probes["cuda_driver"]
    devices = {each.index: each for each in probe.devices if each.capability}
    if index not in devices:
        because = f": {probe.reasons[0].message}" if probe.reasons else ""
        hint = "a device that is not here is asked about by its name, such as --device h100"
        position = f" {index}" if devices else ""
        raise BadInput(f"this machine has no CUDA device{position}{because}", hint)
    return NamedDevice(
        name, devices[index], HERE["cuda"] if not index else f"its CUDA device {index}"
    )
