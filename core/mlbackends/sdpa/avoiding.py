"""What switches off the numbers that torch is known to get wrong on a device."""

from mlbackends.base.errors import BadInput
from mlbackends.known_wrong import Entry, entries, is_there
from mlbackends.sdpa import named_devices
from mlbackends.sdpa.named_devices import NamedDevice
from mlbackends.sdpa.problem_text import Wording, parse
from mlbackends.sdpa.rules.environment import environment_elsewhere


def torch_reports(device: str = "") -> tuple[Entry, ...]:
    """Return the reports of wrong numbers of the installed torch on a device.

    device: its name, "" for this machine's GPU, or its CPUs where it has none.
    Raises UnknownName for an unknown device, BadInput for a CUDA device that this machine does not have.
    """
    place = environment_elsewhere().place(_device(device).device)
    return tuple(entry for entry in entries() if entry.product == "torch" and is_there(entry, place))


def reported_problems(device: str = "") -> tuple[Wording, ...]:
    """Return a problem of each report about attention on a device, for `sdpa check`."""
    name = _device(device).name
    lines = [entry.wrong.problem for entry in torch_reports(device) if entry.operation == "attention"]
    return tuple(wording for line in lines for wording in parse(f"--device {name} {line}"))


def known_wrong_kinds(device: str = "") -> frozenset[str]:
    """Return the names of torch's attention backends with such reports, without MATH, the fallback."""
    return frozenset(name for entry in torch_reports(device) for name in entry.backends) - {"MATH"}


def _device(name: str) -> NamedDevice:
    if name:
        return named_devices.device(name)
    try:
        return named_devices.device("cuda")
    except BadInput:
        return named_devices.device("cpu")
