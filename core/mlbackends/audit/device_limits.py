"""Hold a report to what a kind of device cannot do and may offer.

`limits_of("mps")` are the limits as data; `limits_here("mps", report)` tells which of them apply on the
machine of a report, and `page_of` tells everything of a kind.
"""

from types import ModuleType
from typing import Any

from mlbackends.audit.known import Known
from mlbackends.audit.needs import Seen, met
from mlbackends.model import registry
from mlbackends.model.device_kinds import (
    Feature,
    Here,
    JudgedFeature,
    JudgedLimit,
    KindPage,
    Limit,
    Need,
)
from mlbackends.model.dotted import is_certain
from mlbackends.model.errors import UnknownName
from mlbackends.model.records import Device, Library, ProbeReport, Report

KINDS = "mlbackends.audit.device_kinds"


def kinds() -> tuple[str, ...]:
    """Return the kinds of devices, by the words that people type."""
    return registry.names(KINDS)


def load(kind: str) -> ModuleType:
    """Return the data of a kind. Raises UnknownName, with the nearest kind."""
    if kind not in kinds():
        raise UnknownName("kind of device", kind, kinds(), "backends explain device")
    return registry.load(KINDS, kind)


def title(kind: str) -> str:
    """Return what a kind is, in a phrase."""
    return (load(kind).__doc__ or kind).partition("\n")[0].rstrip(".")


def limits_of(kind: str) -> tuple[Limit, ...]:
    """Return what a kind of device cannot do."""
    return tuple(load(kind).LIMITS)


def features_of(kind: str) -> tuple[Feature, ...]:
    """Return what a device of a kind may offer."""
    return tuple(load(kind).FEATURES)


def probes_of(kind: str) -> tuple[str, ...]:
    """Return the probes that tell of a kind and of all that its page shows."""
    return tuple(load(kind).PROBES)


def labels(kind: str) -> dict[str, str]:
    """Return what people call the values that a kind's page shows, by their dotted names."""
    return {shown.name: shown.label for shown in load(kind).SHOWN}


def limits_here(kind: str, report: Report) -> tuple[JudgedLimit, ...]:
    """Return each limit, and whether it applies on the machine of a report."""
    return page_of(kind, report).limits


def page_of(kind: str, report: Report | None = None) -> KindPage:
    """Return all that is told of a kind; without a report, the data alone."""
    data = load(kind)
    known = Known(report) if report is not None else None
    found, because, devices = _found(data, known)
    asked = known if found else None
    return KindPage(
        kind=kind,
        title=title(kind),
        found=found,
        because=because,
        devices=tuple(_called(device) for device in devices),
        limits=tuple(
            JudgedLimit(each, _limit_here(each, asked) if asked else None) for each in data.LIMITS
        ),
        features=tuple(
            JudgedFeature(each, _feature_here(each, asked) if asked else None)
            for each in data.FEATURES
        ),
        values=_values(data, known),
    )


def _found(data: ModuleType, known: Known | None) -> tuple[bool | None, str, tuple[Device, ...]]:
    """Return whether the machine has such a device, why that cannot be told, and the devices."""
    if known is None:
        return None, "", ()
    if not data.DEVICES:
        return True, "", ()
    unsure = ""
    for name in data.DEVICES:
        told = known.probe(name)
        devices = tuple(each for each in told.devices if each.kind == data.KIND) if told else ()
        if devices:
            return True, "", devices
        if told is None or told.presence is None or not is_certain(told):
            unsure = unsure or known.could_tell(name) or _first_reason(told)
    return (None, unsure, ()) if unsure else (False, "", ())


def _first_reason(told: ProbeReport | None) -> str:
    return told.reasons[0].message if told and told.reasons else "it could not be told"


def _called(device: Device) -> str:
    words = (device.name, device.capability, device.pci_address)
    return f"{device.index}: {', '.join(word for word in words if word) or device.kind}"


def _limit_here(limit: Limit, known: Known) -> Here:
    if not limit.lifted_by:
        return Here(True, "nothing lifts it")
    seen = _all_met(limit.lifted_by, known)
    return Here(None if seen.met is None else not seen.met, seen.said, seen.not_on, seen.on)


def _feature_here(feature: Feature, known: Known) -> Here:
    seen = _all_met(feature.needs, known)
    return Here(seen.met, seen.said, seen.on, seen.not_on)


def _all_met(needs: tuple[Need, ...], known: Known) -> Seen:
    """Return whether all needs are met: one that is not decides, then one that could not be told."""
    all_seen = [met(need, known) for need in needs]
    for seen in all_seen:
        if seen.met is False:
            return seen
    for seen in all_seen:
        if seen.met is None:
            return seen
    split = [seen for seen in all_seen if seen.on]
    return Seen(True, "; ".join(seen.said for seen in all_seen), split[0].on if split else ())


def _values(data: ModuleType, known: Known | None) -> dict[str, Any]:
    """Return what the report tells of what the page shows, by dotted names; what is not there is left out."""
    if known is None:
        return {}
    values: dict[str, Any] = {}
    for shown in data.SHOWN:
        probe, _, name = shown.name.partition(".")
        told = known.probe(probe)
        if name == "libraries":
            value: Any = [_copy(library) for library in known.libraries(probe)]
        elif name == "version":
            value = known.version(probe)
        else:
            value = known.fact(shown.name)
        if told is not None and value not in (None, "", [], {}):
            values[shown.name] = value
    return values


_TOLD_OF_COPIES = (
    "implementation",
    "architecture",
    "threading",
    "threads",
    "max_threads",
    "runtime",
)


def _copy(library: Library) -> str:
    """Return one copy of a library: what it is, whose, and what it says of its threads."""
    about = [f"{name} {library.facts[name]}" for name in _TOLD_OF_COPIES if name in library.facts]
    name = " ".join(part for part in (library.soname or library.name, library.version) if part)
    whose = f" of {library.owner}" if library.owner else f" at {library.path}"
    wins = "" if library.wins or not library.wins_because else ", shadowed"
    return f"{name}{whose}{wins}" + (f" ({', '.join(about)})" if about else "")
