"""What was added, removed and changed from one report to another.

Volatile and identifying values are left out, and metrics may differ by TOLERANCE. What names places
inside the environment or the home folder is compared from there, so that two machines with the same
packages do not differ by where their users keep them. The order of devices and libraries is no
difference.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from mlbackends import __version__
from mlbackends.model import audit
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.difference import SCHEMA, Change, Difference, Kind, Side
from mlbackends.model.dotted import is_certain
from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Device, FactValue, Library, Presence, ProbeReport, Report
from mlbackends.model.registry import facts_of

_TOLERANCE_PARTS = 100
TOLERANCE = 1 / _TOLERANCE_PARTS
"""The share by which two metrics may differ, as the memory does that the kernel leaves on equal machines."""

_HOME = pattern(r"(?<![\w.~-])(?:/home/[^/\s:;,\"']+|/Users/[^/\s:;,\"']+|/root(?=/)|~(?=/))")
_IDENTITY = pattern(r"redacted-\d+|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
"""A device's name in a variable, and what stands for it in a report that was redacted."""
_OF_THE_SYSTEM = ("", "/", "/usr", "/usr/local")
_UNTOLD = "could not be told"
_OF_LIBRARY = ("soname", "version", "presence", "found_by", "owner", "wins")
_OF_DEVICE = ("name", "presence", "memory_bytes", "capability", "driver", "numa_node", "features")

_Values = dict[str, Any]


def compare(before: Report, after: Report, names: tuple[str, str] = ("", "")) -> Difference:
    """Return the difference. names: what people call the two. Raises BadInput where they share no probe."""
    common = [name for name in before.probes if name in after.probes]
    if not common:
        raise BadInput("the two reports have no probe in common")
    depth = min(before.depth, after.depth, key=lambda each: each.rung)
    sides = [_Side(report, depth) for report in (before, after)]
    changes: list[Change] = []
    for name in sorted(common):
        changes += _probe(name, *sides)
    return Difference(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        before=_side(before, names[0]),
        after=_side(after, names[1]),
        changes=tuple(changes),
        notes=tuple(_notes(before, after)),
    )


def check_globs(globs: Sequence[str], *reports: Report) -> None:
    """Raise UnknownName, with the nearest name, for a glob that no name of a report could fit.

    Only parts without a wildcard can be wrong: the probe, and the fact or field below it.
    """
    for glob in globs:
        probe, _, rest = glob.partition(".")
        if _has_wildcard(probe):
            continue
        probes = tuple({name: None for report in reports for name in report.probes})
        if probe not in probes:
            raise UnknownName("probe", probe, probes)
        head = rest.partition("[")[0].partition(".")[0]
        if not head or _has_wildcard(head):
            continue
        known = dict.fromkeys(("presence", "version", "warnings", "libraries", "devices"))
        known |= dict.fromkeys(facts_of(probe))
        for report in reports:
            if probe in report.probes:
                known |= dict.fromkeys(report.probes[probe].facts)
        if head not in known:
            names = tuple(f"{probe}.{each}" for each in known)
            raise UnknownName("value", f"{probe}.{head}", names)


def _has_wildcard(part: str) -> bool:
    return "*" in part or "?" in part


def kept(
    difference: Difference, only: Sequence[str] = (), ignored: Sequence[str] = ()
) -> Difference:
    """Return the difference with the changes alone whose names fit. only, ignored: names or globs."""
    fit, unfit = _fitting(only), _fitting(ignored)
    changes = tuple(
        change
        for change in difference.changes
        if (not fit or fit.match(change.name)) and not (unfit and unfit.match(change.name))
    )
    return replace(difference, changes=changes)


def _fitting(globs: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern for the names that fit one of the globs, and for all that is below them."""
    if not globs:
        return None
    # In a glob "[...]" is a set of letters; in a name it is which library. Here it is the name's.
    told = (re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".") for glob in globs)
    return re.compile("|".join(rf"(?:{each})(?:[.\[]|$)" for each in told), re.DOTALL)


def _side(report: Report, name: str) -> Side:
    return Side(name, report.created, str(report.depth), report.tool)


def _notes(before: Report, after: Report) -> Iterator[str]:
    for here, there, word in ((before, after, "first"), (after, before, "second")):
        only = [name for name in here.probes if name not in there.probes]
        if only:
            yield f"only in the {word}, so not compared: {', '.join(sorted(only))}"
    if before.depth != after.depth:
        yield (
            f"the first was looked at to {before.depth}, the second to {after.depth}: what only the"
            " deeper look tells was left out"
        )


class _Side:
    """One report, as it is compared.

    is_deeper: whether it was looked at further than the other, so that what it alone tells says nothing.
    """

    def __init__(self, report: Report, depth: Presence) -> None:
        self.probes = report.probes
        self.depth = depth
        self.is_deeper = report.depth.rung > depth.rung
        python = report.probes.get("python")
        prefix = str(python.facts.get("prefix", "")) if python else ""
        # Everything lies below /usr; a path there says more than one below "the environment".
        told = "" if prefix in _OF_THE_SYSTEM else re.escape(prefix.rstrip("/"))
        self._prefix = re.compile(rf"{told}(?![\w.-])") if told else None

    def plain(self, value: Any) -> Any:
        """Return a value without identities, its paths from the environment or the home folder on."""
        if isinstance(value, str):
            if "/" in value and self._prefix is not None:
                value = self._prefix.sub("PREFIX", value)
            value = _HOME.sub("~", value) if "/" in value else value
            return _IDENTITY.sub("*", value) if "-" in value else value
        if isinstance(value, list | tuple):
            return [self.plain(each) for each in value]
        if isinstance(value, dict):
            return {self.plain(key): self.plain(each) for key, each in value.items()}
        return value

    def presence(self, presence: Presence | None) -> str:
        """Return a rung, no higher than both reports looked."""
        if presence is None:
            return _UNTOLD
        return str(min(presence, self.depth, key=lambda each: each.rung))

    def fields(self, thing: Library | Device, names: tuple[str, ...]) -> _Values:
        """Return the fields of a library or device that say something, and its facts."""
        told: _Values = {name: getattr(thing, name) for name in names}
        told["presence"] = self.presence(thing.presence)
        told = {name: value for name, value in told.items() if value not in ("", None, ())}
        return self.plain(told | thing.facts)  # type: ignore[no-any-return]


def _probe(name: str, before: _Side, after: _Side) -> Iterator[Change]:
    old, new = before.probes[name], after.probes[name]
    if not (is_certain(old) and is_certain(new)):
        # What could not be told has not gone.
        told = [each.presence if is_certain(each) else None for each in (old, new)]
        if told[0] != told[1]:
            yield Change(f"{name}.presence", Kind.CHANGED, *(str(each or _UNTOLD) for each in told))
        return
    roles = {fact.name: fact.role for fact in facts_of(name).values()}
    compared = _Comparing(before, after, roles)
    yield from compared.values(name, _told(before, old), _told(after, new))
    yield from compared.values(
        name,
        {key: before.plain(value) for key, value in old.facts.items()},
        {key: after.plain(value) for key, value in new.facts.items()},
    )
    yield from _codes(f"{name}.warnings", old, new, compared)
    for label, was, now in libraries(old.libraries, new.libraries, before.plain, after.plain):
        yield from compared.things(f"{name}.libraries[{label}]", was, now, _OF_LIBRARY)
    for label, one, other in devices(old.devices, new.devices):
        yield from compared.things(f"{name}.devices[{label}]", one, other, _OF_DEVICE)


def _told(side: _Side, probe: ProbeReport) -> _Values:
    told = {"presence": side.presence(probe.presence)}
    return told | ({"version": probe.version} if probe.version else {})


def _codes(
    name: str, old: ProbeReport, new: ProbeReport, compared: "_Comparing"
) -> Iterator[Change]:
    """Yield the warnings that came or went, by code: what a message measures differs by itself."""
    was = {reason.code: reason.message for reason in old.warnings}
    now = {reason.code: reason.message for reason in new.warnings}
    yield from compared.values(
        name,
        {code: message for code, message in was.items() if code not in now},
        {code: message for code, message in now.items() if code not in was},
    )


class _Comparing:
    """Compares values with values. roles: those of a probe's facts."""

    def __init__(self, before: _Side, after: _Side, roles: dict[str, str]) -> None:
        self._before = before
        self._after = after
        self._roles = roles

    def values(self, name: str, was: _Values, now: _Values) -> Iterator[Change]:
        """Yield what differs between two tables, whose keys are facts or fields of a probe."""
        for key in sorted({**was, **now}):
            role = self._roles.get(key, "fact")
            if role in ("identity", "volatile"):
                continue
            yield from self._value(f"{name}.{key}", was.get(key), now.get(key), role)

    def things(
        self,
        name: str,
        was: Library | Device | None,
        now: Library | Device | None,
        fields: tuple[str, ...],
    ) -> Iterator[Change]:
        """Yield what differs between two libraries or devices; one that is alone is one change."""
        if was is None or now is None:
            alone, kind = (now, Kind.ADDED) if was is None else (was, Kind.REMOVED)
            assert alone is not None
            side = self._after if was is None else self._before
            told = _name(alone, side.plain)
            yield Change(name, kind, *((None, told) if was is None else (told, None)))
            return
        old, new = self._before.fields(was, fields), self._after.fields(now, fields)
        for key in sorted({**old, **new}):
            yield from self._value(f"{name}.{key}", old.get(key), new.get(key), "fact")

    def _value(self, name: str, was: Any, now: Any, role: str) -> Iterator[Change]:
        if was is None and now is None:
            return
        if was is None or now is None:
            deeper = self._after.is_deeper if was is None else self._before.is_deeper
            if not deeper:
                yield Change(name, Kind.ADDED if was is None else Kind.REMOVED, was, now)
        elif isinstance(was, dict) and isinstance(now, dict):
            for key in sorted({**was, **now}):
                yield from self._value(f"{name}.{key}", was.get(key), now.get(key), role)
        elif isinstance(was, list) and isinstance(now, list) and role != "metric":
            yield from _lists(name, was, now)
        elif not _alike(was, now, role):
            yield Change(name, Kind.CHANGED, was, now)


def _lists(name: str, was: list[Any], now: list[Any]) -> Iterator[Change]:
    """Yield what left a list and what came to it; its order is nothing."""
    old, new = Counter(map(_key, was)), Counter(map(_key, now))
    gone = [msgspec.json.decode(key) for key in (old - new).elements()]
    come = [msgspec.json.decode(key) for key in (new - old).elements()]
    if gone and come:
        yield Change(name, Kind.CHANGED, gone, come)
    elif gone or come:
        yield Change(name, Kind.REMOVED if gone else Kind.ADDED, gone or None, come or None)


def _key(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _alike(was: Any, now: Any, role: str) -> bool:
    if role != "metric" or type(was) is not type(now) or isinstance(was, bool | str):
        return bool(was == now)
    if isinstance(was, list):
        return len(was) == len(now) and all(map(_alike, was, now, [role] * len(was)))
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(_alike(was[key], now[key], role) for key in was)
    # In whole numbers: of one with four hundred digits there is no fraction.
    return bool(abs(was - now) * _TOLERANCE_PARTS <= max(abs(was), abs(now)))


def _name(thing: Library | Device, plain: Callable[[Any], Any]) -> str:
    if isinstance(thing, Library):
        return " ".join(filter(None, (str(plain(thing.path)), thing.version)))
    return thing.name or f"{thing.kind} {thing.index}"


_Thing = TypeVar("_Thing")
_Pair = tuple[_Thing | None, _Thing | None]
_Key = Callable[[_Thing], Hashable]


def libraries(
    before: Sequence[Library],
    after: Sequence[Library],
    plain_before: Callable[[Any], Any],
    plain_after: Callable[[Any], Any],
) -> Iterator[tuple[str, Library | None, Library | None]]:
    """Yield each library with its label, matched by soname and path.

    plain_before, plain_after: take the environment's folder out of a path. A copy that is alone with
    its soname on both sides is the same library in another place.
    """
    same_place = (
        lambda one: (one.soname, plain_before(one.path)),
        lambda one: (one.soname, plain_after(one.path)),
    )
    pairs, left, right = _paired(before, after, same_place)
    moved = _alone(left) & _alone(right)
    by_soname = (
        lambda one: soname if (soname := _soname(one)) in moved else None,
        _soname,
    )
    more, left, right = _paired(left, right, by_soname)
    pairs += [*more, *((one, None) for one in left), *((None, one) for one in right)]
    counts = Counter(_soname(one or other) for one, other in pairs)
    for one, other in sorted(pairs, key=lambda pair: _soname(pair[0] or pair[1])):
        label = _soname(one or other)
        if counts[label] > 1:
            label = str(plain_after(other.path) if other else plain_before(one.path))  # type: ignore[union-attr]
        yield label, one, other


def devices(
    before: Sequence[Device], after: Sequence[Device]
) -> Iterator[tuple[str, Device | None, Device | None]]:
    """Yield each device with its label, matched by address, or by number where one has no address."""
    pairs, left, right = _paired(before, after, (_address, _address))
    more, left, right = _paired(left, right, (_number, _number))
    pairs += [*more, *((one, None) for one in left), *((None, one) for one in right)]
    for one, other in pairs:
        told = other or one
        assert told is not None
        yield told.pci_address or f"{told.kind} {told.index}", one, other


def _paired(
    before: Sequence[_Thing], after: Sequence[_Thing], keys: tuple[_Key[_Thing], _Key[_Thing]]
) -> tuple[list[_Pair[_Thing]], list[_Thing], list[_Thing]]:
    """Pair what has the same key; return the pairs and what is left on each side.

    keys: that of the one side and that of the other; a key of None pairs nothing.
    """
    wanted: dict[Hashable, list[_Thing]] = {}
    for other in after:
        wanted.setdefault(keys[1](other), []).append(other)
    pairs: list[_Pair[_Thing]] = []
    left = []
    for one in before:
        key = keys[0](one)
        if key is not None and wanted.get(key):
            pairs.append((one, wanted[key].pop(0)))
        else:
            left.append(one)
    return pairs, left, [other for others in wanted.values() for other in others]


def _alone(libraries: Sequence[Library]) -> set[str]:
    """Return the sonames that one library alone has."""
    return {name for name, count in Counter(map(_soname, libraries)).items() if count == 1}


def _soname(library: Library | None) -> str:
    assert library is not None
    return library.soname or library.path.rpartition("/")[2]


def _address(device: Device) -> Hashable:
    return (device.kind, device.pci_address) if device.pci_address else None


def _number(device: Device) -> Hashable:
    return device.kind, device.index


_LONGEST = 300
SAME = "same"


def outcome_of(difference: Difference) -> Outcome:
    """Return one failed check for each change; where there is none, one that has passed."""
    subject = f"{difference.after.name} against {difference.before.name}"
    checks = tuple(_check(change) for change in difference.changes)
    return Outcome(
        schema=audit.SCHEMA,
        tool=difference.tool,
        kind="diff",
        title="Differences",
        subject=subject,
        created=difference.after.created,
        checks=checks or (Check(SAME, "The two do not differ"),),
    )


def _check(change: Change) -> Check:
    evidence: dict[str, FactValue] = {}
    if change.before is not None:
        evidence["before"] = change.before
    if change.after is not None:
        evidence["after"] = change.after
    return Check(
        code=change.name,
        title=f"{change.name} is the same",
        severity=Severity.ERROR,
        status=Status.FAILED,
        message=sentence(change),
        evidence=evidence,
    )


def sentence(change: Change) -> str:
    """Return what a change is, on one line."""
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
