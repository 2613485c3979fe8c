"""What schedulers choose nodes by: a few facts of a report, its fingerprint, and words that they take."""

import re
from datetime import datetime

from mlbackends.fleet import fingerprint
from mlbackends.model.records import Report
from mlbackends_cli.text.plain import one_line

_FACTS = (
    "cpu.capability", "cpu.microarchitecture", "host.kernel_release", "host.libc_version",
    "nvidia.driver_release", "nvidia.cuda_version", "rocm.driver_version", "rocm.runtime_version",
)  # fmt: skip
#: The probes that report cards themselves, not an interface to them.
_DEVICES = ("nvidia", "rocm", "xpu", "gaudi", "ascend", "neuron", "tpu", "mtia")
#: Of the value and of the name of a label in Kubernetes.
_MOST_CHARACTERS = 63
_NOT_IN_A_WORD = re.compile(r"[^A-Za-z0-9._-]+")


def features(report: Report) -> dict[str, str]:
    """Return facts by their dotted names, the cards with their number, and the fingerprint, as words."""
    found = {}
    for name in _FACTS:
        probe, _, fact = name.partition(".")
        value = report.probes[probe].facts.get(fact) if probe in report.probes else None
        found[name] = value if isinstance(value, str) else ""
    for probe in _DEVICES:
        devices = report.probes[probe].devices if probe in report.probes else ()
        # An instance of a card is listed together with its card.
        cards = [device for device in devices if device.kind != "mig"]
        names = {card.name for card in cards}
        found[f"{probe}.devices"] = str(len(cards)) if cards else ""
        found[f"{probe}.devices.name"] = names.pop() if len(names) == 1 else ""
    found["fingerprint"] = fingerprint.whole(fingerprint.fingerprints(report))
    return {name: text for name, value in found.items() if (text := word(value))}


def word(text: str) -> str:
    """Return text of letters, digits, "-", "_" and ".", which neither begins nor ends with a sign."""
    words = _NOT_IN_A_WORD.sub("-", one_line(text)[:1000])
    return words.strip("._-")[:_MOST_CHARACTERS].strip("._-")


def moment(created: str) -> datetime | None:
    """Return the time of a report; None if it is not a time or has no zone."""
    try:
        found = datetime.fromisoformat(created)
    except ValueError:
        return None
    return found if found.tzinfo else None
