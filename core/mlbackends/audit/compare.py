"""What was added, removed and changed from one report to another.

Volatile and identifying values are left out, and metrics may differ by TOLERANCE. What names places
inside the environment or the home folder is compared from there, so that two machines with the same
packages do not differ by where their users keep them. The order of devices and libraries is no
difference.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.audit.canonical import UNDETERMINED, ComparedReport, Values, encoded, prefix_of
from mlbackends.audit.causes import causes, joined, records, text_of
from mlbackends.audit.pairs import devices, libraries
from mlbackends.audit.weights import weighed
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.version import __version__
from mlbackends.host.declared import facts_of
from mlbackends.model import audit
from mlbackends.model.audit import Check, Outcome, Status
from mlbackends.model.difference import SCHEMA, Change, Difference, Kind, Side
from mlbackends.model.records import (
    IMPORTED,
    OPENED,
    Device,
    FactValue,
    Library,
    Presence,
    ProbeReport,
    Report,
)
from mlbackends.survey.dotted import is_certain

_TOLERANCE_PARTS = 100
#: The share by which two metrics may differ, as the memory does that the kernel leaves on equal machines.
TOLERANCE = 1 / _TOLERANCE_PARTS

_LONGEST = 300
SAME = "same"
#: How the note begins that two reports are of two environments, whose packages differ for that reason.
ANOTHER_ENVIRONMENT = "these are two Python environments"


def compare(before: Report, after: Report, names: tuple[str, str] = ("", "")) -> Difference:
    """Return the difference. names: what people call the two. Raises BadInput where they share no probe."""
    common = sorted(name for name in before.probes if name in after.probes)
    if not common:
        raise BadInput("the two reports have no probe in common")
    depth = min(before.depth, after.depth, key=lambda each: each.level)
    comparison = _Comparison(ComparedReport(before, depth), ComparedReport(after, depth))
    notes = []
    for report, other, word in ((before, after, "first"), (after, before, "second")):
        if only := sorted(name for name in report.probes if name not in other.probes):
            notes.append(f"only in the {word}, so not compared: {', '.join(only)}")
    if before.depth != after.depth:
        notes.append(
            f"the first was made with --depth {before.depth}, the second with {after.depth}: values that only"
            " the deeper one has were not compared"
        )
    changes = weighed(tuple(change for name in common for change in comparison.probe(name)))
    prefixes = [prefix_of(report.probes.get("python")) for report in (before, after)]
    if (
        all(prefixes)
        and prefixes[0] != prefixes[1]
        and any(change.name.startswith("packages.") for change in changes)
    ):
        notes.insert(0, f"{ANOTHER_ENVIRONMENT}: {prefixes[0]} and {prefixes[1]}")
    reports = zip(names, (before, after), strict=True)
    of_before, of_after = (Side(n, r.created, str(r.depth), r.tool) for n, r in reports)
    return Difference(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        before=of_before,
        after=of_after,
        changes=changes,
        notes=tuple(notes),
    )


def check_globs(globs: Sequence[str], *reports: Report) -> None:
    """Raise UnknownName, with the nearest name, for a glob that no name of a report could fit.

    Only parts without a wildcard can be wrong: the probe, and the fact or field below it.
    """
    for glob in globs:
        probe, _, rest = glob.partition(".")
        head = rest.partition("[")[0].partition(".")[0]
        if "*" in probe or "?" in probe:
            continue
        probes = tuple(dict.fromkeys(name for report in reports for name in report.probes))
        if probe not in probes:
            raise UnknownName("probe", probe, probes)
        if not head or "*" in head or "?" in head:
            continue
        heads = dict.fromkeys(("presence", "version", "warnings", "libraries", "devices"))
        heads |= dict.fromkeys(facts_of(probe))
        for report in reports:
            if probe in report.probes:
                heads |= dict.fromkeys(report.probes[probe].facts)
        if head not in heads:
            raise UnknownName("value", f"{probe}.{head}", tuple(f"{probe}.{name}" for name in heads))


def narrowed(difference: Difference, only: tuple[str, ...] = (), ignored: tuple[str, ...] = ()) -> Difference:
    """Return the difference with the changes alone whose names fit. only, ignored: names or globs."""
    changes = tuple(
        change
        for change in difference.changes
        if fitting(only or ("*",)).match(change.name) and not fitting(ignored).match(change.name)
    )
    return replace(difference, changes=changes)


@cache
def fitting(globs: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for the names that fit one of the globs, and for all that is below them."""
    # In a glob "[...]" is a set of letters; in a name it is which library. Here it is the name's.
    parts = (re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".") for glob in globs)
    return re.compile("|".join(rf"(?:{part})(?:[.\[]|$)" for part in parts) or "(?!)", re.DOTALL)


def _asked_alike(old: ProbeReport, new: ProbeReport) -> tuple[ProbeReport, ProbeReport]:
    """Return two reports on a package without what only the one has that imported or followed it."""
    for side in (old, new):
        if any(reason.code == "not-followed" for reason in side.reasons):
            return side, side
    tables = [side.facts.get("imports") for side in (old, new)]
    outcomes = [[*table.values()] if isinstance(table, dict) else [] for table in tables]
    was_imported = [IMPORTED in words for words in outcomes]
    less = new if was_imported[0] else old
    if (
        was_imported[0] == was_imported[1]
        or less.presence is Presence.ABSENT
        or any(reason.code != "not-computed" for reason in less.reasons)
        or any(word not in (IMPORTED, OPENED) for words in outcomes for word in words)
    ):
        return old, new  # asked alike, or one of them cannot be imported
    names = (old.facts.keys() & new.facts.keys()) - {"imports"}
    old, new = (
        replace(side, presence=less.presence, facts={name: side.facts[name] for name in names})
        for side in (old, new)
    )
    return old, new


class _Comparison:
    """Compares the probes of two reports."""

    def __init__(self, before: ComparedReport, after: ComparedReport) -> None:
        self._before, self._after = before, after

    def probe(self, name: str) -> Iterator[Change]:
        """Yield what differs in one probe."""
        before, after = self._before, self._after
        old, new = before.probes[name], after.probes[name]
        if not (is_certain(old) and is_certain(new)):
            # What could not be determined has not gone.
            presences = [side.presence if is_certain(side) else None for side in (old, new)]
            if presences[0] != presences[1]:
                first, second = (str(presence or UNDETERMINED) for presence in presences)
                yield Change(f"{name}.presence", Kind.CHANGED, first, second)
            return
        old, new = _asked_alike(old, new)
        roles = {fact.name: fact.role for fact in facts_of(name).values()}
        yield from self._values(name, before.head(old), after.head(new), roles)
        yield from self._values(name, before.plain(old.facts), after.plain(new.facts), roles)
        # Warnings by code: what a message measures differs by itself.
        was, now = ({warning.code: warning.message for warning in side.warnings} for side in (old, new))
        ended = {code: message for code, message in was.items() if code not in now}
        begun = {code: message for code, message in now.items() if code not in was}
        yield from self._values(f"{name}.warnings", ended, begun, roles)
        paired = libraries(old.libraries, new.libraries, before.plain, after.plain)
        for label, library, counterpart in paired:
            yield from self._entries(f"{name}.libraries[{label}]", library, counterpart)
        for label, device, other in devices(old.devices, new.devices):
            yield from self._entries(f"{name}.devices[{label}]", device, other)

    def _values(self, name: str, was: Values, now: Values, roles: dict[str, str]) -> Iterator[Change]:
        """Yield what differs between two tables. roles: of their keys; "fact" where none is given."""
        for key in sorted({**was, **now}):
            role = roles.get(key, "fact")
            if role not in ("identity", "volatile"):
                yield from self._value(f"{name}.{key}", was.get(key), now.get(key), role)

    def _entries(
        self, name: str, was: Library | Device | None, now: Library | Device | None
    ) -> Iterator[Change]:
        """Yield what differs between two libraries or devices; one that is alone is one change."""
        if was is not None and now is not None:
            yield from self._values(name, self._before.fields(was), self._after.fields(now), {})
        elif was is not None:
            yield Change(name, Kind.REMOVED, self._before.title(was), None)
        elif now is not None:
            yield Change(name, Kind.ADDED, None, self._after.title(now))

    def _value(self, name: str, was: Any, now: Any, role: str) -> Iterator[Change]:
        if was is None and now is None:
            return
        if was is None or now is None:
            deeper = self._after.is_deeper if was is None else self._before.is_deeper
            if not deeper:
                yield Change(name, Kind.ADDED if was is None else Kind.REMOVED, was, now)
        elif isinstance(was, dict) and isinstance(now, dict):
            yield from self._values(name, was, now, dict.fromkeys({**was, **now}, role))
        elif isinstance(was, list) and isinstance(now, list) and role != "metric":
            # What left a list and what came to it; its order is nothing.
            old, new = (Counter(encoded(value) for value in values) for values in (was, now))
            removed = [msgspec.json.decode(key) for key in (old - new).elements()]
            added = [msgspec.json.decode(key) for key in (new - old).elements()]
            kind = Kind.CHANGED if removed and added else Kind.REMOVED if removed else Kind.ADDED
            if removed or added:
                yield Change(name, kind, removed or None, added or None)
        elif not _alike(was, now, role):
            yield Change(name, Kind.CHANGED, was, now)


def _alike(was: Any, now: Any, role: str) -> bool:
    if role != "metric" or type(was) is not type(now) or isinstance(was, bool | str):
        return bool(was == now)
    if isinstance(was, list):
        return len(was) == len(now) and all(map(_alike, was, now, [role] * len(was)))
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(_alike(was[key], now[key], role) for key in was)
    # In whole numbers: one with four hundred digits has no float.
    return bool(abs(was - now) * _TOLERANCE_PARTS <= max(abs(was), abs(now)))


# ---- for people and for CI ---------------------------------------------------------------------


def outcome_of(difference: Difference) -> Outcome:
    """Return one failed check for each cause; where there is none, one that has passed."""
    checks = [
        Check(
            code=change.name,
            title=f"{change.name} is the same",
            severity=change.severity,
            status=Status.FAILED,
            message=sentence(change) + (f"; also {', '.join(joined(others))}" if others else ""),
            why=change.why,
            evidence={
                word: value
                for word, value in (("before", change.before), ("after", change.after))
                if value is not None
            },
        )
        for change, others in causes(difference.changes)
    ]
    return Outcome(
        schema=audit.SCHEMA,
        tool=difference.tool,
        kind="diff",
        title="Differences",
        subject=f"{difference.after.name} against {difference.before.name}",
        created=difference.after.created,
        checks=tuple(checks) or (Check(SAME, "The two do not differ"),),
    )


def sentence(change: Change) -> str:
    """Return what a change is, on one line."""
    if found := records(change):
        facts = "; ".join(f"{item.kind} {text_of(item, lambda _, value: shown(value))}" for item in found)
        return f"{change.name}: {facts}"
    if change.kind is Kind.ADDED:
        return f"{change.name} was added: {shown(change.after)}"
    if change.kind is Kind.REMOVED:
        return f"{change.name} was removed: {shown(change.before)}"
    return f"{change.name} was {shown(change.before)} and is {shown(change.after)}"


def shown(value: FactValue | None) -> str:
    """Return a value for people: text as it is, everything else as JSON, cut where it is long."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
