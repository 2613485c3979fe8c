"""Expected differences: a file of [[waive]] tables, and a fleet without what they accept."""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mlbackends.audit import catalogue
from mlbackends.audit.compare import SAME, fitting, outcome_of
from mlbackends.audit.policy import reader
from mlbackends.audit.waivers import Waiver
from mlbackends.base.errors import BadInput, counted, shown, suggestion
from mlbackends.fleet.nodesets import expanded, folded
from mlbackends.host.files import named_bytes
from mlbackends.model.audit import Check, Outcome, Place, Severity, Status
from mlbackends.model.difference import Difference as NodeDifference
from mlbackends.model.fleet import (
    Change,
    Deviation,
    Difference,
    Expectation,
    ExpectationState,
    Fleet,
    FleetDifference,
    Hazard,
    Kind,
    Split,
    Step,
)

_Nodes = tuple[str, ...]
_KINDS = ("hazard", "rule", "fact")
_MOST_RANGES = 12
#: What is printed before each entry, by its state.
WORDS = {"used": "expected", "expired": "no longer expected", "unused": "expected, but absent"}


class _Entry(Struct):
    """One [[waive]] table. what: its globs by kind; nodes: None for all.

    findings, covered: what it has accepted, and where.
    """

    waiver: Waiver
    place: Place
    what: dict[str, _Nodes]
    nodes: frozenset[str] | None
    findings: set[str] = field(default_factory=set)
    covered: set[str] = field(default_factory=set)

    def names(self, kind: str, name: str) -> bool:
        """Return whether it names a hazard, a rule or a fact."""
        return fitting(self.what.get(kind, ())).match(name) is not None


class Expected:
    """The entries of a file. kinds: the patterns that count here; today: for entries that end on a day."""

    def __init__(
        self, entries: Iterable[_Entry] = (), kinds: Sequence[str] = (), today: dt.date | None = None
    ) -> None:
        self._today = today or dt.datetime.now().astimezone().date()
        self._kinds = kinds
        self._entries = sorted(entries, key=lambda entry: entry.waiver.is_over(self._today))

    def _parts(self, kind: str, name: str, nodes: _Nodes) -> Iterator[tuple[Waiver | None, _Nodes]]:
        """Yield the nodes of a finding by the waiver that is true of them, the first of those not ended."""
        for entry in self._entries:
            if not (nodes and entry.names(kind, name)):
                continue
            if own := {node for node in nodes if entry.nodes is None or node in entry.nodes}:
                entry.findings.add(name)
                entry.covered |= own
                yield entry.waiver, tuple(node for node in nodes if node in own)
                nodes = tuple(node for node in nodes if node not in own)
        if nodes:
            yield None, nodes

    def divided(self, fact: str, nodes: _Nodes) -> tuple[_Nodes, _Nodes]:
        """Return the nodes on which a difference counts, and those on which it is accepted."""
        parts = self._parts("fact", fact, nodes)
        accepted = {n for waiver, own in parts if waiver and not waiver.is_over(self._today) for n in own}
        return tuple(n for n in nodes if n not in accepted), tuple(n for n in nodes if n in accepted)

    def applied(self, hazard: Hazard) -> Iterator[Hazard]:
        """Yield a failed check as waived on the nodes on which it is accepted; any other as it is."""
        check = hazard.check
        if check.status is not Status.FAILED or not self._entries:
            yield hazard
            return
        kind = "hazard" if check.code in catalogue.codes() else "rule"
        kind = "fact" if self._kinds == ("fact",) else kind
        for waiver, nodes in self._parts(kind, check.code, hazard.nodes):
            yield Hazard(waiver.applied(check, self._today) if waiver else check, nodes)

    def outcome(self, outcome: Outcome, node: str) -> Outcome:
        """Return the outcome of one node with what is accepted waived, and with the checks of entries."""
        parts = (part for check in outcome.checks for part in self.applied(Hazard(check, (node,))))
        codes = [check.code for check in outcome.checks]
        return replace(outcome, checks=(*(part.check for part in parts), *self.checks(codes)))

    def entries(self, checked: Iterable[str] = ()) -> Iterator[Expectation]:
        """Yield what became of each entry, apart from those that other commands use.

        checked: the codes of checks that were made; an entry of other hazards alone cannot be used here.
        """
        for entry in self._entries:
            is_over = entry.waiver.is_over(self._today)
            is_used_here = {*entry.what} <= {*self._kinds} and (
                {*entry.what} != {"hazard"} or any(entry.names("hazard", code) for code in checked)
            )
            if entry.findings or is_used_here:
                state = ExpectationState.USED if entry.findings else ExpectationState.UNUSED
                yield Expectation(
                    ExpectationState.EXPIRED if is_over else state,
                    entry.what,
                    tuple(sorted(entry.findings)),
                    tuple(sorted(entry.covered)),
                    str(entry.waiver.until or ""),
                    entry.waiver.reason,
                    entry.place,
                )

    def checks(self, checked: Iterable[str]) -> Iterator[Check]:
        """Yield a warning for each entry that has ended, and a note for each that accepts nothing."""
        for entry in self.entries(checked):
            if entry.state is not ExpectationState.USED:
                has_ended = entry.state is ExpectationState.EXPIRED
                yield Check(
                    f"expected-{entry.state}",
                    f"no entry of {entry.place.file} is {entry.state}",
                    Severity.WARNING if has_ended else Severity.NOTE,
                    Status.FAILED,
                    sentence(entry),
                    hint="Renew the entry, or remove it." if has_ended else "Remove the entry.",
                    place=entry.place,
                    instance=", ".join(chain(*entry.what.values())),
                )


def sentence(entry: Expectation) -> str:
    """Return what an entry accepts, on which nodes, until when and why."""
    until = f" until {entry.until}" if entry.until else ""
    until += ", which has passed" if entry.state is ExpectationState.EXPIRED else ""
    findings, nodes = counted(len(entry.findings), "finding"), counted(len(entry.nodes), "node")
    what = f"{findings} on {nodes} ({folded(entry.nodes, _MOST_RANGES)})" if entry.nodes else "no finding"
    return f"{', '.join(chain(*entry.what.values()))}: {what} accepted{until}: {entry.reason}"


def read(path: str | None, *kinds: str, today: dt.date | None = None) -> Expected:
    """Read a file of expected differences, if there is one. kinds, today: of `Expected`.

    Raises BadInput: FILE:LINE: KEY: what is wrong.
    """
    if path is None:
        return Expected()
    hint = "it has [[waive]] tables; backends-policy(7) describes them"
    data = named_bytes(path, reader.LIMIT, "file of expected differences", reader.one_line(path), hint)
    document = reader.parsed(data, path, "")
    top = reader.checked(document, (), document.tables, "expected")
    entries = []
    for at, values in enumerate(top.values.get("waive", ())):
        if not isinstance(values, dict):
            top.wrong("must be a list of tables, each under its own [[...]]", "waive")
        entries.append(_entry(reader.checked(document, ("waive", at), values, "accepted")))
    return Expected(entries, kinds, today)


def _entry(table: reader.Table) -> _Entry:
    what = {kind: globs for kind in _KINDS if (globs := table.texts(kind))}
    if not what:
        table.wrong(f"has none of {', '.join(_KINDS)}")
    for key in (*_KINDS, "nodes", "reason"):
        if key in table.values and not (table.texts(key) and all(map(str.strip, table.texts(key)))):
            table.wrong("must not be empty", key)
    for code in what.get("hazard", ()):
        if not any(map(fitting((code,)).match, catalogue.codes())):
            near = suggestion(code, catalogue.codes())
            table.wrong(f"there is no hazard named {shown(code)}{near}", "hazard")
    nodes = None
    for text in table.texts("nodes"):
        try:
            names = expanded(text)
        except BadInput as error:
            table.wrong(str(error), "nodes")
        if not names:
            table.wrong(f"{shown(text)} does not name any node", "nodes")
        nodes = (nodes or frozenset()) | {*names}
    waiver = Waiver(reason=table.values["reason"].strip(), until=table.values.get("until"))
    return _Entry(waiver, table.place(), what, nodes)


# ---- a fleet without what is expected --------------------------------------------------------------


def without_expected(fleet: Fleet, expected: Expected, checked: Iterable[str] = ()) -> Fleet:
    """Return a fleet in which accepted deviations are apart, and accepted hazards are waived.

    checked: of `Expected.entries`.
    """
    hazards = (
        replace(part, check=replace(hazard.check, status=part.check.status))  # a summary is read again later
        for hazard in fleet.hazards
        for part in expected.applied(hazard)
    )
    return replace(
        fleet,
        kinds=tuple(_kind(kind, expected) for kind in fleet.kinds),
        hazards=tuple(hazards),
        outliers=tuple(
            outlier for outlier in fleet.outliers if expected.divided(outlier.name, (outlier.node,))[0]
        ),
        expectations=tuple(expected.entries(checked)),
    )


def _kind(kind: Kind, expected: Expected) -> Kind:
    counting: dict[_Nodes, list[Difference]] = {}
    accepted: dict[_Nodes, list[Difference]] = {}
    for deviation in kind.deviations:
        for difference in deviation.differences:
            sides = expected.divided(difference.name, deviation.nodes)
            for nodes, found in zip(sides, (counting, accepted), strict=True):
                found.setdefault(nodes, []).append(difference)
    splits: dict[tuple[_Nodes, ...], dict[str, tuple[Any, ...]]] = {}
    for split in kind.splits:
        for name, values in split.facts.items():
            rows = []
            for nodes, value in zip(split.groups, values, strict=True):
                rest, own = expected.divided(name, nodes)
                rows += [(rest, value)] if rest else []
                accepted.setdefault(own, []).append(Difference(name, value, None))
            if len(rows) > 1:  # else all that are left have one value
                groups, values = zip(*rows, strict=True)
                splits.setdefault(groups, {})[name] = values
    return replace(
        kind,
        alike=kind.nodes - len({*chain(*counting)}),
        deviations=_deviations(counting, kind),
        splits=tuple(Split(groups, facts) for groups, facts in splits.items()),
        expected=_deviations(accepted, kind),
    )


def _deviations(found: dict[_Nodes, list[Difference]], kind: Kind) -> tuple[Deviation, ...]:
    rows = sorted(found.items(), key=lambda row: (not {*row[0]} <= {*kind.others}, len(row[0]), row[0]))
    return tuple(Deviation(nodes, tuple(differences)) for nodes, differences in rows if nodes)


def of_one_node(difference: NodeDifference, expected: Expected, node: str) -> tuple[NodeDifference, Outcome]:
    """Return a difference of two reports without what is accepted, and its outcome, with that waived."""
    counting = [change for change in difference.changes if expected.divided(change.name, (node,))[0]]
    accepted = tuple(change for change in difference.changes if change not in counting)
    waived = expected.outcome(outcome_of(replace(difference, changes=accepted)), node).checks
    notes = (f"{WORDS[entry.state]}: {sentence(entry)}" for entry in expected.entries())
    rest = replace(difference, changes=tuple(counting), notes=(*difference.notes, *notes))
    outcome = outcome_of(rest)
    more = (check for check in waived if check.code != SAME)
    return rest, replace(outcome, checks=(*outcome.checks, *more))


def changes_without_expected(difference: FleetDifference, expected: Expected) -> FleetDifference:
    """Return a difference without the changes that are accepted."""
    alike: dict[tuple[_Nodes, _Nodes], list[Step]] = {}
    for change in difference.changes:
        for step in change.steps:
            nodes, behind = (expected.divided(step.name, s)[0] for s in (change.nodes, change.left_behind))
            some = tuple(node for node in step.nodes if node in nodes)
            if (nodes or behind) and (some or not step.nodes):
                alike.setdefault((nodes, behind), []).append(replace(step, nodes=some))
    changes = (Change(nodes, behind, tuple(steps)) for (nodes, behind), steps in alike.items())
    return replace(difference, changes=tuple(changes), expectations=tuple(expected.entries()))
