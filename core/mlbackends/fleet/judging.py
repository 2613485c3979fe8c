"""Checks of every node, evaluated once for each distinct configuration.

A judgement depends on the report alone, so reports with equal values have the same outcome. Volatile and
identifying values differ between any two nodes, and most checks read none of them: each value that is read is
recorded, and only reports in which these are equal share an outcome. Metrics are equal if they are equal when
rounded, except those that a policy or the evidence of a failed check names.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mlbackends.audit.policy.rules import Golden, Policy
from mlbackends.audit.policy.selection import Selection
from mlbackends.base.errors import counted, why_not
from mlbackends.base.registry import PROBES, names
from mlbackends.base.version import __version__
from mlbackends.fleet.collection import Collection, form_of, roles_of, without_duration
from mlbackends.fleet.expected import Expected
from mlbackends.fleet.fingerprint import rounded
from mlbackends.fleet.nodesets import folded
from mlbackends.fleet.records import FailedChecks, as_one, merged
from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.fleet import Envelope, Hazard
from mlbackends.model.records import ProbeReport, Report

if TYPE_CHECKING:
    Table = dict[str, Any]
else:
    Table = dict

_CACHED = 50_000
_MOST_RANGES = 12
#: The code of the check that every node has a report.
REPORTED = "node-report"
#: What the message of a check begins with that could not be made.
_UNKNOWN = "not checked: "


class Place(NamedTuple):
    """The place of a value that differs between equal machines. name: "*" for all in a table."""

    probe: str
    is_of_devices: bool
    name: str


class Judge:
    """Judges nodes by a function that reads a report and nothing else.

    places: values that it may read without being recorded. evaluated: how many times it was called.
    """

    def __init__(self, judgement: Callable[[Report], Outcome], places: Iterable[Place] = ()) -> None:
        self.evaluated = 0
        #: Each distinct outcome, by its number, with its nodes.
        self.outcomes: dict[int, tuple[Outcome, list[str]]] = {}
        self._judgement = judgement
        self._places = {*places}
        self._numbers: dict[tuple[int, int], int] = {}
        #: The metrics in the evidence of failures, by the first part of the key.
        self._exact: dict[int, set[Place]] = {}
        #: Hashes of what is compared in a probe's report, by the hash of its JSON.
        self._forms: dict[int, int] = {}

    def visit(self, node: str, envelope: Envelope) -> None:
        """Judge the report of a node, which a collection has accepted."""
        data = envelope.report
        assert isinstance(data, Raw)
        key = self._key(data)
        number = self._numbers.get(key)
        if number is None:
            self.evaluated += 1
            read: set[Place] = set()
            try:
                report = msgspec.json.decode(data, type=Report)
            except (msgspec.DecodeError, RecursionError) as error:
                # Values that a collection does not compare may have any type in a foreign report.
                message = f"not checked: it is not a report of probes: {why_not(error)}"
                title = "every node has a report"
                check = Check(REPORTED, title, Severity.ERROR, Status.UNKNOWN, message)
                outcome = Outcome(SCHEMA, f"backends {__version__}", "doctor", "", "", "", (check,))
            else:
                outcome = self._judgement(_watched(report, read))
            if not read <= self._places:
                self._places |= read
                self._numbers.clear()
                key = self._key(data)
            if metrics := _metrics_in(outcome):
                self._exact[key[0]] = metrics
                key = self._key(data)
            number = self._numbers[key] = len(self.outcomes)
            self.outcomes[number] = (outcome, [])
        self.outcomes[number][1].append(node)

    def by_code(self, expected: Expected) -> dict[str, list[Hazard]]:
        """Return the checks by code, each with the nodes on which it ended so; what is expected is waived."""
        found: dict[str, list[Hazard]] = {}
        for outcome, nodes in self.outcomes.values():
            for check in outcome.checks:
                found.setdefault(check.code, []).extend(expected.applied(Hazard(check, tuple(nodes))))
        return found

    @property
    def hazards(self) -> Iterator[Hazard]:
        """What failed, and on which nodes."""
        for outcome, nodes in self.outcomes.values():
            for check in outcome.failed():
                yield Hazard(check, tuple(nodes))

    def _key(self, data: Raw) -> tuple[int, int]:
        """Return hashes of the values that an outcome can depend on, and of the metrics that it names."""
        document = msgspec.json.decode(data, type=dict[str, Raw])
        if "probes" not in document:  # the record of another command than info
            return hash(bytes(data)), 0
        head = tuple(bytes(document.get(name, Raw())) for name in ("depth", "redacted", "tool"))
        probes = msgspec.json.decode(document["probes"], type=dict[str, Raw])
        forms = tuple(self._form(name, bytes(section)) for name, section in probes.items())

        def values(places: Iterable[Place]) -> tuple[Any, ...]:
            return tuple(_value(probes.get(place.probe), place) for place in sorted(places))

        key = hash((head, forms, values(self._places)))
        return key, hash(values(self._exact.get(key, ())))

    def _form(self, name: str, data: bytes) -> int:
        key = hash((name, without_duration(data)))
        if (form := self._forms.get(key)) is None:
            digest, metrics = form_of(name, data)
            form = hash((name, digest, msgspec.json.encode(rounded(metrics))))
            if len(self._forms) >= _CACHED:
                self._forms.clear()
            self._forms[key] = form
        return form


def _value(section: Raw | None, place: Place) -> tuple[bytes, ...]:
    """Return the values at a place, one per device for those of devices."""
    parts = msgspec.json.decode(section, type=dict[str, Raw]) if section else {}
    rows = [parts["facts"]] if "facts" in parts and not place.is_of_devices else []
    if place.is_of_devices and "devices" in parts:
        devices = msgspec.json.decode(parts["devices"], type=list[dict[str, Raw]])
        rows = [device.get("volatile", Raw(b"{}")) for device in devices]
    if place.name == "*":
        return tuple(map(bytes, rows))
    values = []
    for row in rows:
        try:
            values.append(bytes(msgspec.json.decode(row, type=dict[str, Raw]).get(place.name, Raw())))
        except msgspec.ValidationError:  # not a table: reading it fails
            values.append(bytes(row))
    return tuple(values)


def _metrics_in(outcome: Outcome) -> set[Place]:
    """Return the metrics in the evidence of failed checks."""
    names = (name.split(".") for check in outcome.failed() for name in check.evidence)
    return {
        Place(probe, False, fact[0])
        for probe, *fact in names
        if fact and roles_of(probe).get(fact[0]) == "metric"
    }


def places_of(policies: Sequence[Policy]) -> set[Place]:
    """Return the values that the rules of policies read and that differ between equal machines."""
    found: set[Place] = set()
    for part in _parts(tuple(policies)):
        if isinstance(part, Selection):
            if part.head in roles_of(part.probe):
                found.add(Place(part.probe, is_of_devices=False, name=part.head))
            elif part.head == "devices":
                found.add(Place(part.probe, is_of_devices=True, name="*"))
        elif isinstance(part, Golden):
            for probe in names(PROBES):
                found |= {Place(probe, False, name) for name in roles_of(probe)}
    return found


def _parts(value: Any) -> Iterator[Any]:
    """Yield every record in a value, except those of a stored report."""
    if isinstance(value, Struct):
        yield value
        if not isinstance(value, Golden):
            for name in value.__struct_fields__:
                yield from _parts(getattr(value, name))
    elif isinstance(value, dict):
        yield from _parts(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item)


class Finder:
    """Finds hazards: checks that failed on the nodes themselves, and, if asked, hazards in their reports."""

    def __init__(self, *, looks: bool) -> None:
        self._finders: list[Judge | FailedChecks] = [FailedChecks()]
        if looks:
            from mlbackends.audit.runner import examine

            self._finders.append(Judge(examine))

    def visit(self, node: str, envelope: Envelope) -> None:
        """Examine the envelope of a node, which a collection has accepted."""
        for finder in self._finders:
            finder.visit(node, envelope)

    @property
    def hazards(self) -> Iterator[Hazard]:
        """What was found."""
        return (hazard for finder in self._finders for hazard in finder.hazards)


class _Watched(Table):
    """A table that records which values are read. noted: only these names; None for all."""

    def __init__(
        self, values: dict[str, Any], noted: frozenset[str] | None, note: Callable[[str], None]
    ) -> None:
        super().__init__(values)
        self._noted, self._note = noted, note

    def record(self, *name: Any) -> None:
        """Record that a value is read, or all values."""
        every = ("*",) if self._noted is None else self._noted
        for read in name or every:
            if self._noted is None or read in self._noted:
                self._note(str(read))


def _recording(method: str) -> Any:
    """Return a method of dict that records the value it reads first, or all where it names none."""

    def read(self: _Watched, *arguments: Any) -> Any:
        self.record(*arguments[:1])
        return getattr(dict, method)(self, *arguments)

    return read


for _method in ("__getitem__", "get", "__contains__", "__iter__", "keys", "values", "items"):
    setattr(_Watched, _method, _recording(_method))


def _watched(report: Report, read: set[Place]) -> Report:
    """Return a report that adds to `read` each value it is asked for that differs between equal machines."""

    def section(probe: str, report: ProbeReport) -> ProbeReport:
        def watched(values: dict[str, Any], noted: frozenset[str] | None = None) -> _Watched:
            return _Watched(values, noted, lambda name: read.add(Place(probe, noted is None, name)))

        unlike = frozenset(fact for fact, role in roles_of(probe).items() if role != "metric")
        devices = (replace(device, volatile=watched(device.volatile)) for device in report.devices)
        return replace(report, facts=watched(report.facts, unlike), devices=tuple(devices))

    probes = {name: section(name, probe) for name, probe in report.probes.items()}
    return replace(report, probes=probes)


# ---- outcomes of many nodes ----------------------------------------------------------------------


def fleet_outcome(judge: Judge, collection: Collection, expected: Expected | None = None) -> Outcome:
    """Return the outcomes of all nodes as one: a failed check states on how many nodes it failed.

    A node without a report is a check with the status unknown. An entry of the expected differences that has
    ended or accepts nothing is a failed check, so that the file stays short.
    """
    expected = expected or Expected()
    nothing = Outcome("", "", "", "", "", "", ())
    first = next((outcome for outcome, _ in judge.outcomes.values()), nothing)
    total = len(collection.nodes)
    checks = [
        _without_report(status, error, nodes) for (status, error), nodes in collection.all_silent().items()
    ]
    judged = {node for _, nodes in judge.outcomes.values() for node in nodes}
    if unseen := [node for node in collection.nodes if node not in judged]:
        why = "it was read from a summary, which holds no report"
        checks.append(_without_report("not checked", why, unseen))
    by_code = judge.by_code(expected)
    for every in by_code.values():
        well = (Status.PASSED, Status.SKIPPED)
        bad = [hazard for hazard in every if hazard.check.status not in well]
        if not bad:  # what passed, or does not apply, on every node has passed
            passed = [hazard for hazard in every if hazard.check.status is Status.PASSED]
            checks.append(as_one(passed or every).check)
        for hazard in merged(bad):
            check, having = hazard.check, hazard.nodes
            scope = f"{len(having):,} of {total:,} nodes ({folded(having, _MOST_RANGES)})"
            message = f"{scope}: {check.message or check.title}"
            if check.status is Status.UNKNOWN:
                message = _UNKNOWN + message.replace(_UNKNOWN, "")
            evidence = {"nodes": folded(having), **check.evidence}
            checks.append(replace(check, message=message, evidence=evidence))
    checks += expected.checks(by_code)
    created = max((outcome.created for outcome, _ in judge.outcomes.values()), default="")
    return replace(first, subject=counted(total, "node"), created=created, checks=tuple(checks))


def _without_report(status: str, error: str, nodes: Sequence[str]) -> Check:
    return Check(
        REPORTED,
        "every node has a report",
        Severity.ERROR,
        Status.UNKNOWN,
        f"{counted(len(nodes), 'node')} ({folded(nodes, _MOST_RANGES)}): {status}: {error}",
        evidence={"nodes": folded(nodes)},
    )
