"""The history of kept runs: roll-outs with their progress, nodes that flap or are silent, and since when.

The answers of one node after another are read. Each report is compared with the node's previous one, by the
sections in which the two differ. Nodes with the same changes in the same runs share a path, and everything
else is computed once for each path: memory grows with the nodes and the distinct changes, not the reports.
"""

from collections import Counter
from collections.abc import Collection as Names
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from mlbackends.audit.canonical import encoded
from mlbackends.base.errors import Incomplete, counted
from mlbackends.base.quantities import utc
from mlbackends.base.version import __version__
from mlbackends.fleet.collection import HEAD, are_near, roles_of, sentence
from mlbackends.fleet.fingerprint import leaves, of_all_devices
from mlbackends.fleet.groups import facts_named, values_of
from mlbackends.fleet.store import Answer, Folder
from mlbackends.model.fleet import Status, Step
from mlbackends.model.history import (
    SCHEMA,
    Count,
    FactHistory,
    Flap,
    History,
    Move,
    RollOut,
    Run,
    RunSummary,
    SilentSince,
    State,
)

#: By fact its value before and after.
_Steps = dict[str, tuple[Any, Any]]
_Sections = frozenset[int]
_Sides = tuple[_Sections, _Sections, frozenset[str]]
#: From this number of silences on, a node flaps; one is a reboot.
_SILENCES = 2


class _Change(NamedTuple):
    """A change of a fact on nodes."""

    run: int
    was: Any
    now: Any
    nodes: list[str]


def history_of(folder: Folder, nodes: Names[str] = (), facts: Sequence[str] = ()) -> History:
    """Return the history of the runs that asked what the newest one did.

    nodes, facts: only these. Raises BadInput, UnknownName, and Incomplete where no run has a report.
    """
    every = folder.runs()
    newest = folder.run()
    runs = [run for run in every if run.asked.command == newest.asked.command]
    past = _Past(folder, runs, facts)
    for node, answers in groupby(folder.answers([run.number for run in runs]), lambda answer: answer.node):
        if not nodes or node in nodes:
            past.read(node, [*answers])
    if not past.has_reports:
        raise Incomplete(f"no kept run of {folder.path} has a report" + (" of these nodes" if nodes else ""))
    notes = []
    if others := len(every) - len(runs):
        notes.append(f"left out, since another command was run: {counted(others, 'run')}")
    if past.absent:
        notes.append(f"not counted as left, since the newest run did not ask: {counted(past.absent, 'node')}")
    rollouts, flaps = past.changes()
    return History(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        folder=folder.path,
        command=newest.asked.command,
        runs=tuple(map(past.summary, runs)),
        rollouts=rollouts,
        flaps=flaps,
        silent=past.silent(),
        not_compared=tuple(sorted(past.varying)),
        notes=tuple(notes),
        facts=past.fact_histories(),
    )


class _Past:
    """What has become of each node from run to run. absent: the nodes that the newest run did not ask."""

    def __init__(self, folder: Folder, runs: Sequence[Run], facts: Sequence[str]) -> None:
        self._folder, self._newest = folder, runs[-1].number
        self._expected = {*names} if isinstance(names := runs[-1].expected, tuple) else set()
        self.varying = {name for run in runs for name in run.varying}
        self.absent, self.has_reports = 0, False
        self._chosen = facts_named(facts, folder.facts()) if facts else None
        self._reported: Counter[int] = Counter()
        self._answered: Counter[int] = Counter()
        #: Nodes by the run and the sides of each change; by the runs in which they fell silent or came back;
        #: by since when they are silent, and why; and by their newest sections.
        self._paths: dict[tuple[tuple[int, _Sides], ...], list[str]] = {}
        self._turns: dict[tuple[int, ...], list[str]] = {}
        self._silent: dict[tuple[int, str, str], list[str]] = {}
        self._present: dict[_Sections, list[str]] = {}
        #: By run, how many more nodes have sections.
        self._gains: dict[int, Counter[_Sections]] = {run.number: Counter() for run in runs}

    # ---- reading -----------------------------------------------------------------------------------

    def read(self, node: str, answers: Sequence[Answer]) -> None:
        """Read the answers of a node, the oldest first."""
        self._answered.update(answer.run for answer in answers)
        reports = [answer for answer in answers if answer.sections]
        self._reported.update(answer.run for answer in reports)
        turns = tuple(now.run for was, now in pairwise(answers) if bool(was.sections) != bool(now.sections))
        silences = sum(bool(was.sections) and not now.sections for was, now in pairwise(answers))
        if silences >= _SILENCES and self._chosen is None:
            self._turns.setdefault(turns, []).append(node)
        if answers[-1].run == self._newest and not (last := answers[-1]).sections:
            since = turns[-1] if turns else answers[0].run
            error = sentence(node, last.error) if last.status != Status.OK else "its report cannot be used"
            status = last.status if last.status != Status.OK else Status.ERROR
            self._silent.setdefault((since, str(status), error), []).append(node)
        if not reports:
            return
        self.has_reports = True
        changes = [(was, now) for was, now in pairwise(reports) if was.sections != now.sections]
        moves = [(now.run, self._sides(was, now)) for was, now in changes]
        path = tuple((run, sides) for run, sides in moves if self._steps(*sides))
        self._paths.setdefault(path, []).append(node)
        if answers[-1].run != self._newest and node not in self._expected:
            self.absent += 1
            return
        self._present.setdefault(reports[-1].sections, []).append(node)
        self._gains[reports[0].run][reports[0].sections] += 1
        for was, now in changes:
            self._gains[now.run].update({now.sections: 1, was.sections: -1})

    def _sides(self, before: Answer, after: Answer) -> _Sides:
        """Return the sections in which two reports of a node differ, and the metrics that are near."""
        old, new = before.sections - after.sections, after.sections - before.sections
        heads = [self._section_of(answer.sections, HEAD) for answer in (before, after)]
        sides = (old | {heads[0]}, new | {heads[1]})
        metrics = filter(_is_metric, self._steps(*sides, frozenset()))
        return *sides, frozenset(m for m in metrics if self._is_near(m, before.report, after.report))

    @cache  # noqa: B019  a command reads one history
    def _steps(self, before: _Sections, after: _Sections, near: frozenset[str]) -> _Steps:
        """Return the facts in which sections differ, with both values, without those that are near."""
        sides = {
            side: [self._folder.section(number) for number in numbers if number]
            for side, numbers in enumerate((before, after))
        }
        found: _Steps = {}
        for name, values in values_of(sides).items():
            is_chosen = self._chosen is None or name in self._chosen
            if len(values) > 1 and name not in self.varying and name not in near and is_chosen:
                states = {side: value for value, having in values for side in having}
                found[name] = (states.get(0), states.get(1))
        return found

    def _is_near(self, name: str, *reports: int) -> bool:
        """Return whether what two reports measured is equal within the tolerance; forms are rounded."""
        first, second = (_measured(self._folder.content(report), name) for report in reports)
        if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
            return all(map(_are_near, first, second))
        return _are_near(first, second)

    @cache  # noqa: B019  a command reads one history
    def _section_of(self, sections: _Sections, probe: str) -> int:
        """Return the number of a probe's section, 0 for none."""
        return next((number for number in sections if self._folder.section(number).probe == probe), 0)

    @cache  # noqa: B019  a command reads one history
    def _values(self, number: int) -> dict[str, Any]:
        return of_all_devices(self._folder.section(number).facts)

    def _value(self, sections: _Sections, name: str) -> Any:
        number = self._section_of(sections, name.partition(".")[0])
        return self._values(number).get(name) if number else None

    # ---- results -----------------------------------------------------------------------------------

    def summary(self, run: Run) -> RunSummary:
        """Return when a run was and how many nodes answered."""
        reported = self._reported[run.number]
        ended = None if run.ended is None else utc(run.ended)
        return RunSummary(
            run.number, utc(run.started), ended, reported, self._answered[run.number] - reported
        )

    def changes(self) -> tuple[tuple[RollOut, ...], tuple[Flap, ...]]:
        """Return the roll-outs, the newest first, and the nodes on which a value returned."""
        flaps: dict[Any, dict[str, tuple[Any, ...]]] = {}
        flapping: dict[str, set[str]] = {}
        found: dict[tuple[str, bytes], list[_Change]] = {}
        for path, nodes in self._paths.items():
            chains: dict[str, list[_Change]] = {}
            for run, sides in path:
                for name, (was, now) in self._steps(*sides).items():
                    chains.setdefault(name, []).append(_Change(run, was, now, nodes))
            for name, chain in chains.items():
                values = {
                    encoded(value): value for value in (chain[0].was, *(change.now for change in chain))
                }
                if len(values) <= len(chain):
                    key = (tuple(nodes), tuple(change.run for change in chain))
                    flaps.setdefault(key, {})[name] = tuple(values.values())
                    flapping.setdefault(name, set()).update(nodes)
                    continue
                for change in chain:
                    found.setdefault((name, encoded(change.now)), []).append(change)
        alike: dict[tuple[tuple[Move, ...], tuple[str, ...]], list[Step]] = {}
        for (name, _), changes in found.items():
            moves: dict[int, list[str]] = {}
            formers: dict[bytes, tuple[Any, list[str]]] = {}
            for change in changes:
                moves.setdefault(change.run, []).extend(change.nodes)
                formers.setdefault(encoded(change.was), (change.was, []))[1].extend(change.nodes)
            gone = flapping.get(name, set()).union(*moves.values())
            left = tuple(node for node in self._with(name, formers) if node not in gone)
            stages = tuple(Move(run, tuple(sorted(moves[run]))) for run in sorted(moves))
            alike.setdefault((stages, left), []).extend(
                Step(name, was, changes[0].now, tuple(sorted(nodes)) if len(formers) > 1 else ())
                for was, nodes in formers.values()
            )
        rollouts = [_rollout(*same, steps) for same, steps in alike.items()]
        rollouts.sort(key=lambda rollout: (-rollout.moves[0].run, -rollout.done, rollout.steps[0].name))
        found_flaps = [Flap(nodes, runs, values) for (nodes, runs), values in flaps.items()]
        for runs, nodes in self._turns.items():
            found_flaps.append(Flap(tuple(nodes), runs, {"status": ("ok", "silent")}))
        found_flaps.sort(key=lambda flap: (-len(flap.runs), flap.nodes))
        return tuple(rollouts), tuple(found_flaps)

    def _with(self, name: str, values: Names[bytes]) -> list[str]:
        """Return the nodes that have one of some values of a fact."""
        present = self._present.items()
        return sorted(
            node
            for sections, nodes in present
            if encoded(self._value(sections, name)) in values
            for node in nodes
        )

    def silent(self) -> tuple[SilentSince, ...]:
        """Return the nodes without a report in the newest run, those of the latest silence first."""
        return tuple(SilentSince(*key, tuple(nodes)) for key, nodes in sorted(self._silent.items())[::-1])

    def fact_histories(self) -> tuple[FactHistory, ...]:
        """Return the values over time of the chosen facts: of those that vary, or of all if none does."""
        total: Counter[_Sections] = Counter()
        by_run = [(run, total := total + gains) for run, gains in self._gains.items()]
        every = [self._fact_history(name, by_run) for name in self._chosen or ()]
        return tuple([fact for fact in every if fact.mixed_since or len(fact.states) > 1] or every)

    def _fact_history(self, name: str, by_run: Iterable[tuple[int, Counter[_Sections]]]) -> FactHistory:
        states: list[State] = []
        mixed_since: int | None = None
        for run, total in by_run:
            values: dict[bytes, tuple[Any, int]] = {}
            for sections, count in total.items():
                value = self._value(sections, name)
                key = encoded(value)
                values[key] = (value, values.get(key, (value, 0))[1] + count)
            ordered = sorted(values.values(), key=lambda pair: (-pair[1], encoded(pair[0])))
            counts = tuple(Count(*pair) for pair in ordered)
            is_mixed = sum(count.value is not None for count in counts) > 1
            mixed_since = (mixed_since or run) if is_mixed else None
            if counts and (not states or states[-1].counts != counts):
                states.append(State(run, counts))
        return FactHistory(name, mixed_since, tuple(states))


def _rollout(moves: tuple[Move, ...], left: tuple[str, ...], steps: Iterable[Step]) -> RollOut:
    done = sum(len(move.nodes) for move in moves)
    ordered = tuple(sorted(steps, key=_report_order))
    return RollOut(ordered, moves, done + len(left), left if done >= len(left) else ())


def _are_near(first: Any, second: Any) -> bool:
    is_measured = isinstance(first, int | float) and isinstance(second, int | float)
    return are_near(first, second) if is_measured else bool(first == second)


def _is_metric(name: str) -> bool:
    probe, _, fact = name.partition(".")
    return roles_of(probe).get(fact.partition(".")[0]) == "metric"


def _measured(data: bytes, name: str) -> Any:
    """Return a metric as it is in a report, None if it has none."""
    probe, _, rest = name.partition(".")
    fact = rest.partition(".")[0]
    try:
        for key in ("probes", probe, "facts", fact):
            data = msgspec.json.decode(data, type=dict[str, Raw])[key]
        return dict(leaves(f"{probe}.{fact}", msgspec.json.decode(data))).get(name)
    except (KeyError, msgspec.DecodeError):
        return None


def _report_order(step: Step) -> tuple[bool, bool, int, str]:
    """Return the sort key of a fact: numbers of devices and versions first, then short names."""
    name = step.name
    return (not name.endswith((".devices", ".version")), "[" in name, len(name), name)
