"""What every page shows of a probe: its label, group and state, and why the state is not better."""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.base.errors import UnknownName, counted, joined
from mlbackends.base.reasons import UNCHECKED, Reason
from mlbackends.host.declared import facts_of
from mlbackends.model.records import Device, Library, Presence, ProbeReport, Report
from mlbackends.survey.dotted import undetermined
from mlbackends_cli.report import machine
from mlbackends_cli.text.plain import amount, binary_size

GROUPS = ("machine", "accelerator", "library", "framework", "use")
MARKS = {"usable": "✓", "loadable": "◐", "found": "·", "broken": "✗", "unknown": "?", "absent": "–"}
MEANINGS = {
    "usable": "computed a correct result",
    "loadable": "opens and answers",
    "found": "found only",
    "broken": "broken",
    "unknown": "could not be determined",
    "absent": "not found",
}
#: The first parts of a machine; the others keep their order.
_PARTS = ("cpu", "memory", "limits")
#: Reasons that do not mean that an existing thing is broken.
_NOT_ITS_FAULT = UNCHECKED | {"no-driver", "no-device"}


# ---- what a probe declares -----------------------------------------------------------------


def label(name: str) -> str:
    """Return what a probe's thing is called: the first words of its docstring, "cuDNN" for cudnn."""
    return _names(name)[0]


def meaning(name: str) -> str:
    """Return what a probe's thing is, in a phrase: "NVIDIA's deep-learning primitives"."""
    return _names(name)[2].strip().rstrip(".")


def _names(name: str) -> tuple[str, str, str]:
    return (getattr(_probe(name), "__doc__", "") or name).splitlines()[0].partition(":")


def _probe(name: str) -> ModuleType | None:
    """Return a probe; None for one that a saved report has and this installation has not."""
    try:
        return registry.load("mlbackends_probes", name)
    except UnknownName:
        return None


def group(name: str) -> str:
    """Return the group that a probe declares, "library" if it declares none of GROUPS."""
    group = getattr(_probe(name), "GROUP", "library")
    return group if group in GROUPS else "library"


def glance(name: str, probe: ProbeReport) -> str:
    """Return what the overview shows of a probe, as one line."""
    return " · ".join(aspects(name, probe))


def aspects(name: str, probe: ProbeReport) -> list[str]:
    """Return what the overview shows of a probe: a line for each aspect of a processor, else one or none.

    That is the facts that the probe's SUMMARY names. An item is a fact's name, or a template such as
    "{sockets} sockets". It is left out where a fact is missing, or has the value that the probe's
    USUAL gives.
    """
    if name in machine.ASPECTS:
        return [line for line in machine.ASPECTS[name](probe.facts) if line]
    module = _probe(name)
    usual = getattr(module, "USUAL", {})
    values = {"version": probe.version} if probe.version else {}
    for fact, value in probe.facts.items():
        if fact not in usual or usual[fact] != value:
            text = amount(fact, value)
            values[fact] = text.replace(", ", " · ") if isinstance(value, dict) else text
    shown = []
    for item in getattr(module, "SUMMARY", ()):
        template = item if "{" in item else f"{{{item}}}"
        try:
            text = " ".join(template.format(**values).split())
        except KeyError:
            continue
        if text:  # "1 cores" becomes "1 core", "1 CPUs usable" becomes "1 CPU usable"
            shown.append(re.sub(r"^1 ([A-Za-z]+)s(?=[ ,]|$)", r"1 \1", text))
    return [" · ".join(shown)] if shown else []


# ---- presence levels and their reasons ------------------------------------------------------


def state_of(entry: ProbeReport | Library | Device) -> str:
    """Return the state of a probe, device or library: one of MARKS."""
    if entry.presence is None or getattr(entry, "failure", None) is not None:
        return "unknown"
    has_files = entry.presence in (Presence.FOUND, Presence.LOADABLE)
    excused = UNCHECKED if isinstance(entry, Device) else _NOT_ITS_FAULT
    codes = {reason.code for reason in entry.reasons} - excused
    return "broken" if has_files and codes else str(entry.presence)


def is_present(probe: ProbeReport) -> bool:
    """Return whether a probe found something or failed."""
    return probe.presence not in (None, Presence.ABSENT) or probe.failure is not None


class Row(NamedTuple):
    """A probe in the overview: its description, a line per kind of device, and the reason of its state."""

    name: str
    probe: ProbeReport
    lines: list[str]
    problem: str


def overview(report: Report, *, explained: bool = False) -> dict[str, list[Row]]:
    """Return a row for each probe that shows something, by group; the highest presence level first.

    explained: a part of the machine has a line for each aspect, and reasons of failures are shown elsewhere.
    """
    rows: dict[str, list[Row]] = {group: [] for group in GROUPS}
    for name, probe in report.probes.items():
        kind, lines, problem = group(name), [glance(name, probe)], why(probe)
        if kind == "machine":
            if lines := [problem] if probe.failure else aspects(name, probe):
                lines = lines if explained else [" · ".join(lines)]
                rows[kind].append(Row(name, probe, lines, ""))
        elif is_present(probe) and kind != "use":  # `uses` has these
            is_card = kind == "accelerator"
            place = location(probe) if kind == "library" else ""
            cards = device_lines(probe, explained=explained)
            lines = [*cards, *lines] if is_card else [lines[0] or place]
            problem = "" if explained and state_of(probe) == "broken" else problem
            # Where only the CPU computes, as llvmpipe and PoCL do, there is no accelerator.
            types = {device.facts.get("device_type") for device in probe.devices}
            shelf = "library" if is_card and types == {"cpu"} else kind
            rows[shelf].append(Row(name, probe, [line for line in lines if line], problem))
    rows["machine"].sort(key=lambda row: _PARTS.index(row.name) if row.name in _PARTS else len(_PARTS))
    for kind in GROUPS[1:]:
        rows[kind].sort(
            key=lambda row: (1 if row.probe.presence is None else -row.probe.presence.level, row.name)
        )
    return rows


def torch_first(row: Row) -> tuple[bool, bool, str]:
    """Return the sort key of packages: torch first, and last entries that are not packages."""
    return (row.name in ("compilers", "packages"), row.name != "torch", row.name)


def missing(report: Report) -> list[str]:
    """Return the names of what was not found; parts of the machine always exist."""
    return [
        name
        for name, probe in report.probes.items()
        if state_of(probe) == "absent" and group(name) not in ("machine", "use")
    ]


def without_row(report: Report) -> dict[str, str]:
    """Return the undetermined probes without a row in the overview, with the reason.

    Of those with the same reason only the first is returned; its reason names the others.
    """
    by_reason: dict[str, list[str]] = {}
    for name in undetermined(report):
        probe = report.probes.get(name)
        if probe and probe.presence is None and probe.failure is None:
            reason = probe.reasons[0].message if probe.reasons else "the report gives no reason"
            by_reason.setdefault(reason, []).append(name)
    return {
        first: f"{why}; so also {', '.join(others)}" if others else why
        for why, (first, *others) in by_reason.items()
    }


def broken(report: Report) -> list[tuple[str, Reason]]:
    """Return why each probe and each device is broken, with the probe's name.

    Packages that cannot be imported for one cause are one entry: each fails with the words of the first.
    """
    found: dict[tuple[str, str], Reason] = {}
    importers: dict[str, list[str]] = {}
    for name, probe in report.probes.items():
        entries: tuple[ProbeReport | Device, ...] = (probe, *probe.devices)
        broken = [entry for entry in entries if state_of(entry) == "broken"]
        for entry in broken:
            for reason in entry.reasons:
                if reason.code in UNCHECKED:
                    continue
                # Names one of several devices; a reason of all, or of the probe itself, is shown once.
                if isinstance(entry, Device) and len(probe.devices) > len(broken):
                    words = f"{entry.kind} {entry.index}: {reason.message}"
                    reason = replace(reason, message=words)
                if reason.code == "import-failed":
                    cause = reason.message.partition(" fails: ")[2]
                    importers.setdefault(cause, []).append(name)
                    if importers[cause][0] != name:
                        continue
                found.setdefault((name, reason.message), reason)
    for (name, message), reason in found.items():
        if others := importers.get(message.partition(" fails: ")[2], [name])[1:]:
            words = f"{message}; {joined(others)} for the same cause"
            found[name, message] = replace(reason, message=words)
    return [(name, reason) for (name, _), reason in found.items()]


def warnings(report: Report) -> list[tuple[str, Reason]]:
    """Return each warning with its first probe; the same words only once."""
    found: dict[str, tuple[str, Reason]] = {}
    for name, probe in report.probes.items():
        for warning in probe.warnings:
            found.setdefault(warning.message, (name, warning))
    return list(found.values())


def why(probe: ProbeReport) -> str:
    """Return why a probe has not reached the next presence level, "" if nothing is wrong."""
    if probe.failure is not None:
        return f"could not be determined: {probe.failure.message}"
    return "" if probe.presence is Presence.USABLE else _because(own_reasons(probe))


def own_reasons(probe: ProbeReport, libraries: Sequence[Library] = ()) -> list[Reason]:
    """Return a probe's reasons without those of its devices and libraries, which are shown with them."""
    entries: tuple[Device | Library, ...] = (*probe.devices, *libraries)
    messages = {reason.message for entry in entries for reason in entry.reasons}
    return [reason for reason in probe.reasons if reason.message not in messages]


def _because(reasons: list[Reason] | tuple[Reason, ...]) -> str:
    """Return the first reason, and the number of further ones."""
    if [reason.code for reason in reasons] == ["not-imported"]:
        return "not imported"
    reasons = [reason for reason in reasons if reason.code not in UNCHECKED]
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return reasons[0].message + more if reasons else ""


def location(probe: ProbeReport) -> str:
    """Return the package or path of the copy that the probe's presence and version are of."""
    best = max(probe.libraries, key=lambda one: (one.wins, one.presence.level), default=None)
    if best is None:
        return ""
    if best.found_by.startswith("inside "):
        inside = best.owner.startswith(best.found_by.removeprefix("inside "))
        return f"inside {best.owner}" if inside else f"{best.found_by}: {best.owner or best.path}"
    return best.owner if best.owner and best.found_by in ("site-packages", "conda") else best.path


# ---- devices, libraries and facts ----------------------------------------------------------


def alike(devices: Iterable[Device]) -> list[list[Device]]:
    """Return devices that are of one kind and in one state together."""
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in devices:
        key = (device.name, device.memory_bytes, device.capability, device.presence, device.reasons)
        groups.setdefault(key, []).append(device)
    return list(groups.values())


def device_lines(probe: ProbeReport, *, explained: bool = False) -> list[str]:
    """Return a line for each kind of a probe's devices, with their number.

    explained: reasons of failures are shown elsewhere.
    """
    counts: dict[str, int] = {}
    for device in probe.devices:
        is_broken = explained and state_of(device) == "broken"
        parts = (
            device.name or f"{device.kind} device",
            "the CPU, no GPU" if device.facts.get("device_type") == "cpu" else "",
            binary_size(device.memory_bytes) if device.memory_bytes else "",
            device.capability,
            f"driver {device.driver}" if device.driver else "",
            MEANINGS["broken"] if is_broken else _because(device.reasons),
        )
        line = " · ".join(filter(None, parts))
        counts[line] = counts.get(line, 0) + 1
    return [f"{count} × {text}" if count > 1 else text for text, count in counts.items()]


def values_of(entry: Device | Library) -> dict[str, object]:
    """Return every value of a device or of a copy of a library, by name."""
    if isinstance(entry, Device):
        names = (
            "memory_bytes",
            "capability",
            "driver",
            "pci_address",
            "uuid",
            "serial",
            "numa_node",
        )
        rows = {name: getattr(entry, name) for name in names}
        rows |= {"features": list(entry.features), **entry.facts, **entry.volatile}
        return {name: value for name, value in rows.items() if value not in (None, "", [])}
    rows = {name: getattr(entry, name) for name in ("version", "soname", "owner", "found_by")}
    if entry.wins or entry.wins_because:
        rows["wins"] = ", ".join(filter(None, ("yes" if entry.wins else "no", entry.wins_because)))
    if isinstance(entry.used, bool):
        rows["used"] = "the process has it mapped" if entry.used else "not mapped"
    return {name: value for name, value in {**rows, **entry.facts}.items() if value != ""}


Table = list[dict[str, object]]


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Table]]:
    """Return the values, and apart from them those that are lists of records, which a table shows best."""
    tables = {
        name: value
        for name, value in values.items()
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    }
    return {name: value for name, value in values.items() if name not in tables}, tables


def shown_facts(name: str, probe: ProbeReport) -> tuple[dict[str, Any], dict[str, Table]]:
    """Return a probe's facts under their labels, as `split` does; of `uses` its one table."""
    if group(name) == "use":
        return {}, {"": used} if (used := uses(probe)) else {}
    declared = facts_of(name)
    labels = {fact: declared[fact].label or fact for fact in probe.facts if fact in declared}
    values, tables = split({labels.get(fact, fact): value for fact, value in probe.facts.items()})
    return values, {label: _matrix(rows) for label, rows in tables.items()}


#: How `nvidia-smi topo -m` calls paths.
_PATHS = {
    "one-switch": "PIX",
    "several-switches": "PXB",
    "host-bridge": "PHB",
    "numa-node": "NODE",
    "system": "SYS",
}


def _matrix(rows: Table) -> Table:
    """Return pairs of GPUs with a row and a column for each, as `nvidia-smi topo -m` has them.

    Other tables, and pairs that are none, come back as they are.
    """
    cells: dict[tuple[int, int], str] = {}
    for row in rows:
        pair = row.get("gpus")
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(i) is int for i in pair)):
            return rows
        path, links = str(row.get("path", "")), row.get("nvlinks")
        cells[pair[0], pair[1]] = cells[pair[1], pair[0]] = f"NV{links}" if links else _PATHS.get(path, path)
    gpus = sorted({gpu for gpu, _ in cells})
    return [
        {"gpu": gpu} | {f"GPU{other}": "X" if gpu == other else cells.get((gpu, other), "") for other in gpus}
        for gpu in gpus
    ]


def uses(probe: ProbeReport | None) -> Table:
    """Return a row for each library that a package uses, of the probe `uses`."""
    rows = []
    for fact, use in (probe.facts if probe else {}).items():
        values = use if isinstance(use, dict) else {}
        package = f"{fact.replace('_', '-')} {values.get('version', '')}".rstrip()
        for row in values.values():
            if isinstance(row, dict):
                library = f"{row.get('library', '')} {row.get('version', '')}".rstrip()
                rows.append({**row, "package": package, "uses": library})
    order = ("package", "uses", "core", "threads", "runtime", "problem", "path", "threads_source")
    names = [name for name in order if any(name in row for row in rows)]
    return [{name: row.get(name, "") for name in names} for row in rows]


def used_libraries(probe: ProbeReport | None) -> dict[str, list[str]]:
    """Return of each package its version and what it uses: "BLAS openblas 0.3.30 · Haswell · 4 threads"."""
    found: dict[str, list[str]] = {}
    for row in uses(probe):
        package, _, version = str(row["package"]).partition(" ")
        library, _, number = str(row["uses"]).partition(" ")
        runtime, count = str(row.get("runtime", "")), row.get("threads")
        heads = {"openmp": f"OpenMP {runtime} {number}", "onednn": f"oneDNN {number}"}
        head = " ".join(heads.get(library, f"BLAS {library} {number}").split())
        threads = counted(count, "thread") if isinstance(count, int) else ""
        runtime = "" if library == "openmp" else runtime
        parts = (head, row.get("core"), threads, runtime, row.get("problem"))
        texts = found.setdefault(package, [version])
        texts.append(" · ".join(str(part) for part in parts if part))
    return found


def columns(rows: Table) -> list[str]:
    """Return the names in the records of a table, in the order in which they first come."""
    return list(dict.fromkeys(key for row in rows for key in row))


def provenance(report: Report) -> dict[str, str]:
    """Return the origin of a report."""
    return {
        "tool": report.tool,
        "schema": report.schema,
        "created": report.created,
        "depth": f"{report.depth}: the highest presence level that was tried",
        "root": report.root,
        "redacted": "yes: identifying values were replaced" if report.redacted else "no",
    }
