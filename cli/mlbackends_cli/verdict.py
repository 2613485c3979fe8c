"""What a probe came to, in a word and a sentence; the words that every page for people shares."""

from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device, Failure, Library, Presence, ProbeReport, Report
from mlbackends_cli import catalogue

MARKS = {
    "usable": "✓",
    "loadable": "◐",
    "found": "·",
    "broken": "✗",
    "unknown": "?",
    "absent": "–",
}
MEANINGS = {
    "usable": "computed something right",
    "loadable": "opens and answers",
    "found": "found only",
    "broken": "broken",
    "unknown": "could not tell",
    "absent": "not here",
}

_NOT_ITS_FAULT = {"no-use-check", "no-driver", "no-device"}
"""Reasons for which what is here is not called broken."""


def state(
    presence: Presence | None, reasons: tuple[Reason, ...] = (), failure: Failure | None = None
) -> str:
    """Return the word for how far something got: one of MARKS."""
    if failure is not None or presence is None:
        return "unknown"
    here = presence in (Presence.FOUND, Presence.LOADABLE)
    codes = {reason.code for reason in reasons} - _NOT_ITS_FAULT
    return "broken" if here and codes else str(presence)


def state_of(thing: ProbeReport | Library | Device) -> str:
    """Return the word for a record."""
    return state(thing.presence, thing.reasons, getattr(thing, "failure", None))


def is_here(probe: ProbeReport) -> bool:
    """Tell whether there is anything to say of a probe but that its thing is not there."""
    return probe.presence not in (None, Presence.ABSENT) or probe.failure is not None


def missing(report: Report) -> list[str]:
    """Return the names of what was looked for and is not here; the machine's parts always are."""
    return [
        name
        for name, probe in report.probes.items()
        if state_of(probe) == "absent" and catalogue.group(name) != "machine"
    ]


def untold(report: Report) -> dict[str, str]:
    """Return what no file can tell of, with why: neither here nor not here."""
    return {
        name: probe.reasons[0].message
        for name, probe in report.probes.items()
        if probe.presence is None and probe.failure is None
    }


def warnings(report: Report) -> list[tuple[str, Reason]]:
    """Return the warnings with the probe that tells each; the same words only once."""
    told: dict[str, tuple[str, Reason]] = {}
    for name, probe in report.probes.items():
        for warning in probe.warnings:
            told.setdefault(warning.message, (name, warning))
    return list(told.values())


def grouped(report: Report) -> dict[str, dict[str, ProbeReport]]:
    """Return the probes by their group; every group is there."""
    groups: dict[str, dict[str, ProbeReport]] = {group: {} for group in catalogue.GROUPS}
    for name, probe in report.probes.items():
        groups[catalogue.group(name)][name] = probe
    return groups


def by_rung(probes: dict[str, ProbeReport]) -> dict[str, ProbeReport]:
    """Return the probes that are here, the highest rung first, then by name."""
    here = [name for name, probe in probes.items() if is_here(probe)]
    here.sort(key=lambda name: (-_rung(probes[name].presence), name))
    return {name: probes[name] for name in here}


def _rung(presence: Presence | None) -> int:
    return -1 if presence is None else presence.rung


def why(probe: ProbeReport) -> str:
    """Return why a probe is not on the next rung, "" where nothing is wrong."""
    if probe.failure is not None:
        return f"could not tell: {probe.failure.message}"
    if probe.presence is Presence.USABLE:
        return ""
    return because([reason for reason in own_reasons(probe) if reason.code != "no-use-check"])


def own_reasons(probe: ProbeReport) -> list[Reason]:
    """Return a probe's reasons without those that its devices give, which are shown beside them."""
    given = {reason.message for device in probe.devices for reason in device.reasons}
    return [reason for reason in probe.reasons if reason.message not in given]


def because(reasons: list[Reason] | tuple[Reason, ...]) -> str:
    """Return the first reason, and how many more there are."""
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return reasons[0].message + more if reasons else ""


def where(probe: ProbeReport) -> str:
    """Say where the copy that speaks for the probe comes from: its package, or its path."""
    best = max(probe.libraries, key=lambda one: (one.wins, one.presence.rung), default=None)
    if best is None:
        return ""
    if best.found_by.startswith("inside "):
        return f"{best.found_by}: {best.owner or best.path}"
    return best.owner if best.owner and best.found_by in ("site-packages", "conda") else best.path


def alike(devices: tuple[Device, ...]) -> list[tuple[int, Device]]:
    """Count devices that look the same at a glance."""
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in devices:
        key = (device.name, device.memory_bytes, device.capability, device.presence, device.reasons)
        groups.setdefault(key, []).append(device)
    return [(len(group), group[0]) for group in groups.values()]


def device_line(count: int, device: Device) -> str:
    """Return what a device is on one line, and how many there are."""
    name = device.name or f"{device.kind} device"
    parts = [f"{count} × {name}" if count > 1 else name]
    if device.memory_bytes:
        parts.append(catalogue.binary_size(device.memory_bytes))
    if device.capability:
        parts.append(device.capability)
    if device.driver:
        parts.append(f"driver {device.driver}")
    if said := because([one for one in device.reasons if one.code != "no-use-check"]):
        parts.append(said)
    return " · ".join(parts)


def device_rows(device: Device) -> dict[str, object]:
    """Return everything that is known of a device, by name."""
    told = {
        "memory_bytes": device.memory_bytes,
        "capability": device.capability,
        "driver": device.driver,
        "pci_address": device.pci_address,
        "uuid": device.uuid,
        "serial": device.serial,
        "numa_node": device.numa_node,
        "features": list(device.features),
        **device.facts,
        **device.volatile,
    }
    return {name: value for name, value in told.items() if value not in (None, "", [])}


def library_rows(library: Library) -> dict[str, object]:
    """Return everything that is known of a copy of a library, by name."""
    told: dict[str, object] = {
        "version": library.version,
        "soname": library.soname,
        "owner": library.owner,
        "found_by": library.found_by,
    }
    if library.wins or library.wins_because:
        told["wins" if library.wins else "shadowed"] = library.wins_because or "yes"
    if isinstance(library.used, bool):
        told["used"] = "the process has it mapped" if library.used else "not mapped"
    return {name: value for name, value in {**told, **library.facts}.items() if value != ""}


def is_table(value: object) -> bool:
    """Tell whether a fact is a list of records, which a table shows best."""
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def columns(rows: list[dict[str, object]]) -> list[str]:
    """Return the names in the records of a table, in the order in which they are met."""
    return list(dict.fromkeys(key for row in rows for key in row))


def provenance(report: Report) -> dict[str, str]:
    """Return where the report comes from."""
    return {
        "tool": report.tool,
        "schema": report.schema,
        "created": report.created,
        "depth": f"{report.depth}: the highest rung that was tried",
        "root": report.root,
        "redacted": "yes: identifying values were replaced" if report.redacted else "no",
    }
