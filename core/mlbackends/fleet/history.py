"""The history of kept runs: roll-outs with their progress, nodes that flap or are silent, and since when.

A node's configuration is compared with that of its previous report, by the sections in which the two differ.
Nodes with the same changes in the same runs share a path, and everything else is computed once for each path:
memory grows with the nodes and the distinct changes, not with the reports.
"""

import time
from collections import Counter
from collections.abc import Collection as Names
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from mlbackends.base.errors import Incomplete, counted
from mlbackends.base.version import __version__
from mlbackends.fleet.collection import HEAD, MISSING, are_near, roles_of, sentence
from mlbackends.fleet.fingerprint import leaves, of_all_devices
from mlbackends.fleet.groups import facts_named, values_of
from mlbackends.fleet.store import Folder
from mlbackends.model.fleet import Status, Step
from mlbackends.model.history import (
    SCHEMA,
    Count,
    Event,
    FactHistory,
    Flap,
    History,
    Move,
    NodeHistory,
    RollOut,
    Run,
    RunSummary,
    SilentSince,
    State,
)

_Steps = dict[str, tuple[Any, Any]]
#: The numbers of a report and of its configuration.
_Report = tuple[int, int]
_NO_ROW = (None,)
_CACHED = 4096
#: From this number of silences on, a node flaps; one is a reboot.
_SILENCES = 2


class _Change(NamedTuple):
    """A change of a fact on the nodes of a path."""

    run: int
    was: Any
    now: Any
    path: int


def history_of(folder: Folder, nodes: Names[str] = (), facts: Sequence[str] = ()) -> History:
    """Return the history of the runs that asked what the newest one did.

    nodes, facts: only these, and their own histories. Raises BadInput, UnknownName, and Incomplete where no
    run has a report.
    """
    every = folder.runs()
    command = folder.run().asked.command
    runs = [run for run in every if run.asked.command == command]
    past = _Past(folder, runs[-1], nodes, facts)
    summaries = tuple(past.read(run) for run in runs)
    if not past.latest:
        raise Incomplete(f"no kept run of {folder.path} has a report" + (" of these nodes" if nodes else ""))
    notes = []
    if others := len(every) - len(runs):
        notes.append(f"{counted(others, 'run')} of other commands are left out")
    if absent := len(past.latest.keys() - past.asked):  # those of the newest run
        notes.append(f"{counted(absent, 'node')} that the newest run did not ask are not counted as left")
    rollouts, flaps = past.changes()
    return History(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        folder=folder.path,
        command=command,
        runs=summaries,
        rollouts=rollouts,
        flaps=flaps,
        silent=past.silent(),
        not_compared=tuple(sorted(past.varying)),
        notes=tuple(notes),
        facts=past.fact_histories(),
        nodes=past.node_histories() if nodes else (),
    )


class _Past:
    """What has become of each node from run to run.

    latest: the newest report of each node. asked: the nodes of the run that was read last.
    """

    def __init__(self, folder: Folder, newest: Run, nodes: Names[str], facts: Sequence[str]) -> None:
        self.latest: dict[str, _Report] = {}
        self.asked: set[str] = set()
        self.varying = folder.varying()
        self._folder, self._nodes = folder, frozenset(nodes)
        self._chosen = facts_named(facts, folder.facts()) if facts else None
        #: By node, the run and the number of the steps of each change; and the run, status and error of each
        #: change of its status. Equal ones are one object.
        self._paths: dict[str, tuple[tuple[int, int], ...]] = {}
        self._statuses: dict[str, tuple[tuple[int, str, str], ...]] = {}
        self._shared: dict[Any, Any] = {}
        self._steps: list[_Steps] = []
        self._numbers: dict[Any, int] = {}
        self._states: dict[str, list[State]] = {name: [] for name in self._chosen or ()}
        self._mixed: dict[str, int | None] = {}
        self._present = self._asked_by(newest, {node for _, node, *_ in folder.rows(newest.number)})
        self._sections = lru_cache(_CACHED)(folder.sections_of)
        self._probes = lru_cache(_CACHED)(self._sections_by_probe)
        self._facts = lru_cache(_CACHED)(lambda number: of_all_devices(folder.section(number).facts))
        self._compared = lru_cache(_CACHED)(self._differences)

    # ---- reading -----------------------------------------------------------------------------------

    def read(self, run: Run) -> RunSummary:
        """Read a run, which is later than all that were read before."""
        rows: dict[str, tuple[int, str, str, int | None]] = {}
        for report, node, status, error, configuration in self._folder.rows(run.number):
            if (not self._nodes or node in self._nodes) and rows.get(node, _NO_ROW)[-1] is None:
                rows[node] = (report, status, error, configuration)
        self.asked = self._asked_by(run, rows)
        reported = 0
        for node, (report, status, error, configuration) in rows.items():
            if configuration is not None:
                reported += 1
                self._status(run.number, node, Status.OK, "")
                self._reported(run.number, node, (report, configuration))
            elif status == Status.OK:
                self._status(run.number, node, Status.ERROR, "its report cannot be used")
            else:
                self._status(run.number, node, status, sentence(node, error))
        silent = len(rows) - reported
        if run.ended is not None:  # else it may not have been asked
            for node in self.asked - rows.keys():
                silent += 1
                self._status(run.number, node, *MISSING)
        self._note_values(run.number)
        ended = None if run.ended is None else _iso(run.ended)
        return RunSummary(run.number, _iso(run.started), ended, reported, silent)

    def _asked_by(self, run: Run, seen: Names[str]) -> set[str]:
        """Return the nodes that a run asked; of a run without names those that are known."""
        names = run.expected if isinstance(run.expected, tuple) else self.latest
        return {name for name in (*names, *seen) if not self._nodes or name in self._nodes}

    def _reported(self, run: int, node: str, report: _Report) -> None:
        before, path = self.latest.get(node, report), self._paths.setdefault(node, ())
        self.latest[node] = report
        if before[1] != report[1] and self._steps[number := self._number(before, report)]:
            path = (*path, (run, number))
            self._paths[node] = self._shared.setdefault(path, path)

    def _status(self, run: int, node: str, status: str, error: str) -> None:
        before = self._statuses.get(node, ())
        if not before or before[-1][1:] != (status, error):
            changed = (*before, (run, str(status), error))
            self._statuses[node] = self._shared.setdefault(changed, changed)

    def _number(self, before: _Report, after: _Report) -> int:
        """Return the number of the steps between two reports of a node."""
        old, new = self._sections(before[1]), self._sections(after[1])
        heads = [self._probes(report[1]).get(HEAD, 0) for report in (before, after)]
        sides = [frozenset(side) for side in ((old - new) | {heads[0]}, (new - old) | {heads[1]})]
        steps = self._compared(*sides)
        near = frozenset(
            name for name in steps if _is_metric(name) and self._is_near(name, before[0], after[0])
        )
        key = (*sides, near)
        if key not in self._numbers:
            self._numbers[key] = len(self._steps)
            self._steps.append({name: step for name, step in steps.items() if name not in near})
        return self._numbers[key]

    def _differences(self, before: frozenset[int], after: frozenset[int]) -> _Steps:
        """Return the facts in which sections differ, with both values."""
        sides = {
            side: [self._folder.section(number) for number in numbers if number]
            for side, numbers in enumerate((before, after))
        }
        found: _Steps = {}
        for name, values in values_of(sides).items():
            if (
                len(values) > 1
                and name not in self.varying
                and (self._chosen is None or name in self._chosen)
            ):
                states = {side: value for value, having in values for side in having}
                found[name] = (states.get(0), states.get(1))
        return found

    def _is_near(self, name: str, *reports: int) -> bool:
        """Return whether what two reports measured is equal within the tolerance; forms are rounded."""
        first, second = (_measured(self._folder.content(report), name) for report in reports)
        pairs = [(first, second)]
        if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
            pairs = [*zip(first, second, strict=True)]
        return all(
            are_near(*pair) if all(isinstance(value, int | float) for value in pair) else pair[0] == pair[1]
            for pair in pairs
        )

    def _sections_by_probe(self, configuration: int) -> dict[str, int]:
        return {self._folder.section(number).probe: number for number in self._sections(configuration)}

    def _value(self, configuration: int, name: str) -> Any:
        number = self._probes(configuration).get(name.partition(".")[0])
        return self._facts(number).get(name) if number else None

    # ---- results -----------------------------------------------------------------------------------

    def changes(self) -> tuple[tuple[RollOut, ...], tuple[Flap, ...]]:
        """Return the roll-outs, the newest first, and the nodes on which a value returned."""
        paths = [*_grouped(self._paths).items()]
        flaps: dict[Any, dict[str, tuple[Any, ...]]] = {}
        flapping: dict[str, set[str]] = {}
        found: dict[tuple[str, bytes], list[_Change]] = {}
        for at, (path, nodes) in enumerate(paths):
            chains: dict[str, list[_Change]] = {}
            for run, number in path:
                for name, (was, now) in self._steps[number].items():
                    chains.setdefault(name, []).append(_Change(run, was, now, at))
            for name, chain in chains.items():
                values = {_text(value): value for value in (chain[0].was, *(step.now for step in chain))}
                if len(values) <= len(chain):
                    key = (nodes, tuple(step.run for step in chain))
                    flaps.setdefault(key, {})[name] = tuple(values.values())
                    flapping.setdefault(name, set()).update(nodes)
                    continue
                for step in chain:
                    found.setdefault((name, _text(step.now)), []).append(step)
        present: dict[int, list[str]] = {}
        for node in self.latest.keys() & self.asked:
            present.setdefault(self.latest[node][1], []).append(node)
        alike: dict[Any, list[Step]] = {}
        for (name, _), steps in found.items():
            moves = tuple(sorted((step.run, step.path) for step in steps))
            formers: dict[bytes, tuple[Any, list[str]]] = {}
            for step in steps:
                formers.setdefault(_text(step.was), (step.was, []))[1].extend(paths[step.path][1])
            gone = {node for _, some in formers.values() for node in some} | flapping.get(name, set())
            left = tuple(
                sorted(
                    node
                    for configuration, some in present.items()
                    if _text(self._value(configuration, name)) in formers
                    for node in some
                    if node not in gone
                )
            )
            alike.setdefault((moves, left), []).extend(
                Step(name, was, steps[0].now, tuple(sorted(some)) if len(formers) > 1 else ())
                for was, some in formers.values()
            )
        rollouts = []
        for (moves, left), stages in alike.items():
            runs: dict[int, list[str]] = {}
            for run, at in moves:
                runs.setdefault(run, []).extend(paths[at][1])
            done = sum(map(len, runs.values()))
            stages.sort(key=_report_order)
            rollouts.append(
                RollOut(
                    tuple(stages),
                    tuple(Move(run, tuple(sorted(nodes))) for run, nodes in runs.items()),
                    done + len(left),
                    left if done >= len(left) else (),
                )
            )
        rollouts.sort(key=lambda one: (-one.moves[0].run, -one.done, one.steps[0].name))
        found_flaps = [Flap(nodes, runs, values) for (nodes, runs), values in flaps.items()]
        if self._chosen is None:
            found_flaps += self._flapping_statuses()
        found_flaps.sort(key=lambda flap: (-len(flap.runs), flap.nodes))
        return tuple(rollouts), tuple(found_flaps)

    def _flapping_statuses(self) -> Iterator[Flap]:
        for statuses, nodes in _grouped(self._statuses).items():
            runs = [
                now[0]
                for was, now in zip((statuses[0], *statuses), statuses, strict=False)
                if (was[1] == Status.OK) != (now[1] == Status.OK)
            ]
            silences = sum(run in runs for run, status, _ in statuses if status != Status.OK)
            if silences >= _SILENCES:
                yield Flap(nodes, tuple(runs), {"status": ("ok", "silent")})

    def silent(self) -> tuple[SilentSince, ...]:
        """Return the nodes without a report in the newest run, those of the latest silence first."""
        found: dict[tuple[int, str, str], list[str]] = {}
        for statuses, nodes in _grouped(self._statuses).items():
            if statuses[-1][1] == Status.OK:
                continue
            since = statuses[-1][0]
            for run, status, _ in reversed(statuses):
                if status == Status.OK:
                    break
                since = run
            some = [node for node in nodes if node in self.asked]
            found.setdefault((since, *statuses[-1][1:]), []).extend(some)
        return tuple(
            SilentSince(*key, tuple(sorted(nodes))) for key, nodes in sorted(found.items())[::-1] if nodes
        )

    def _note_values(self, run: int) -> None:
        """Keep how many nodes have which value of each chosen fact after a run."""
        if not self._states:
            return
        configurations = Counter(self.latest[node][1] for node in self.latest.keys() & self._present)
        for name, states in self._states.items():
            values: dict[bytes, tuple[Any, int]] = {}
            for configuration, count in configurations.items():
                value = self._value(configuration, name)
                values[_text(value)] = (value, values.get(_text(value), (value, 0))[1] + count)
            ordered = sorted(values.values(), key=lambda pair: (-pair[1], _text(pair[0])))
            counts = tuple(Count(*pair) for pair in ordered)
            is_mixed = sum(count.value is not None for count in counts) > 1
            self._mixed[name] = (self._mixed.get(name) or run) if is_mixed else None
            if counts and (not states or states[-1].counts != counts):
                states.append(State(run, counts))

    def fact_histories(self) -> tuple[FactHistory, ...]:
        """Return the values over time of the chosen facts: of those that vary, or of all if none does."""
        every = [FactHistory(name, self._mixed[name], tuple(states)) for name, states in self._states.items()]
        return tuple([one for one in every if one.mixed_since or len(one.states) > 1] or every)

    def node_histories(self) -> tuple[NodeHistory, ...]:
        """Return what was new on each node, by run."""
        both = {node: (self._statuses[node], self._paths.get(node, ())) for node in self._statuses}
        found = []
        for (statuses, path), nodes in _grouped(both).items():
            steps = {
                run: tuple(Step(name, *pair) for name, pair in self._steps[number].items())
                for run, number in path
            }
            news = {run: (status, error) for run, status, error in statuses}
            events = (
                Event(run, *news.get(run, (None, "")), steps.get(run, ())) for run in sorted({*steps, *news})
            )
            found.append(NodeHistory(nodes, tuple(events)))
        return tuple(sorted(found, key=lambda one: one.nodes))


def _grouped(values: dict[str, Any]) -> dict[Any, tuple[str, ...]]:
    """Return the nodes of each value, sorted."""
    found: dict[Any, list[str]] = {}
    for node, value in values.items():
        found.setdefault(value, []).append(node)
    return {value: tuple(sorted(nodes)) for value, nodes in found.items()}


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


def _text(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
