"""The history of a fleet as text: roll-outs with their progress, nodes that flap or are silent, values."""

import datetime as dt
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from mlbackends.base.errors import counted
from mlbackends.model.fleet import Step
from mlbackends.model.history import FactHistory, Flap, History, RollOut, RunSummary, SilentSince
from mlbackends_cli.fleet.text import Parts, nodes_of, shown, unlike
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import one_line

#: The most runs, other rows, facts of a change, and values that are shown without --all.
_MOST_RUNS, _MOST_ROWS, _MOST_FACTS, _MOST_VALUES = 5, 20, 4, 8
_Row = tuple[str, list[str]]


class _Text:
    """Writes a history. days: the local time at which each run began, by its number."""

    def __init__(self, history: History, page: Page) -> None:
        self._history, self._whole = history, page.details
        self.nodes = partial(nodes_of, whole=page.details)
        self._times = {
            run.run: f"{dt.datetime.fromisoformat(run.started).astimezone():%Y-%m-%d %H:%M}"
            for run in history.runs
        }

    def day(self, run: int) -> str:
        """Return the day on which a run began; with the time where another run began on that day."""
        text = self._times[run]
        days = [other[:10] for other in self._times.values()]
        return text[:10] if days.count(text[:10]) == 1 else text

    def since(self, run: int) -> str:
        """Return the day of a run as a beginning; nothing older than the first run is known."""
        return f"since {self.day(run)}" + (" or earlier" if run == self._history.runs[0].run else "")

    def first(self, items: list[Any], most: int, noun: str) -> tuple[list[Any], list[str]]:
        """Return the first items, and how many others there are."""
        more = 0 if self._whole else len(items) - most
        return (items[:most], [f"and {counted(more, noun)}"]) if more > 0 else (items, [])

    def limited(self, rows: Iterable[_Row], noun: str, most: int = _MOST_ROWS) -> list[_Row]:
        """Return the first rows, and a row for the others."""
        some, more = self.first([*rows], most, noun)
        return some + [("", [f"{text}; --all shows them"]) for text in more]

    def run(self, run: RunSummary) -> _Row:
        """Return a run with its numbers of nodes."""
        text = f"{self._times[run.run]}: {run.reported:,} reported"
        text += f", {run.silent:,} without a report" if run.silent else ""
        return f"run {run.run}", [text + ("" if run.ended else ", interrupted or still running")]

    def rollout(self, rollout: RollOut) -> _Row:
        """Return a roll-out: one line with its progress, and below it the other facts."""
        first, *others = self.steps(rollout.steps)
        done, total = rollout.done, rollout.total
        since, last = self.day(rollout.moves[0].run), self.day(rollout.moves[-1].run)
        if done == 1 or 2 * done < total:  # of one node, or of few: no roll-out
            nodes = [node for move in rollout.moves for node in move.nodes]
            scope = f"on {done:,} of {counted(total, 'node')}: {self.nodes(nodes)}"
        else:
            scope = f"{done:,} of {counted(total, 'node')} done" + (f" by {last}" if last != since else "")
            if rollout.left:
                scope += f"; not yet: {self.nodes(rollout.left)}"
        return since, [f"{first} since {since}: {scope}", *others]

    def steps(self, steps: Sequence[Step]) -> list[str]:
        """Return the first fact that changed, with its values, and below it the others."""
        lines = []
        for step in steps:
            before, after = unlike(step.name, step.before, step.after)
            some = f" ({self.nodes(step.nodes)})" if step.nodes else ""
            lines.append(f"{one_line(step.name)} {before} → {after}{some}")
        return list(chain(*self.first(lines, _MOST_FACTS, "other fact")))

    def flap(self, flap: Flap) -> _Row:
        """Return nodes on which values returned, and those values."""
        lines = [
            f"{one_line(name)} {' ↔ '.join(unlike(name, *values[:_MOST_VALUES]))}"
            for name, values in flap.facts.items()
        ]
        when = f"{self.nodes(flap.nodes)}, last on {self.day(flap.runs[-1])}"
        return f"{len(flap.runs)} changes", [when, *chain(*self.first(lines, _MOST_FACTS, "other fact"))]

    def silent(self, silent: SilentSince) -> _Row:
        """Return nodes without a report, why, and since when."""
        error = one_line(silent.error)
        return silent.status, [f"{self.nodes(silent.nodes)}: {error}, {self.since(silent.run)}"]

    def fact(self, fact: FactHistory) -> tuple[str, list[_Row]]:
        """Return a fact, since when nodes differ in it, and how many nodes had which value."""
        has_none = any(count.value is None for state in fact.states[-1:] for count in state.counts)
        mixed = "the same on all nodes" + (" that have it" if has_none else "")
        if fact.mixed_since is not None:
            mixed = f"mixed {self.since(fact.mixed_since)}"
        rows = []
        for state in reversed(fact.states):
            texts = [
                f"{shown(fact.name, count.value)}: {counted(count.nodes, 'node')}" for count in state.counts
            ]
            rows.append((self._times[state.run], [*chain(*self.first(texts, _MOST_VALUES, "more value"))]))
        return f"{one_line(fact.name)}: {mixed}", self.limited(rows, "earlier state")


def history_parts(history: History, page: Page) -> Parts:
    """Return the parts of a history: runs, roll-outs, flapping and silent nodes, values."""
    text = _Text(history, page)
    title = f"{counted(len(history.runs), 'run')} of `{history.command}`"
    parts = [
        (title, text.limited(map(text.run, reversed(history.runs)), "earlier run", _MOST_RUNS)),
        ("Changes", text.limited(map(text.rollout, history.rollouts), "earlier change")),
        ("Nodes that changed back and forth", text.limited(map(text.flap, history.flaps), "other group")),
        (
            "Without a report in the newest run",
            text.limited(map(text.silent, history.silent), "earlier silence"),
        ),
        *map(text.fact, history.facts),
    ]
    notes = [*history.notes]
    if names := history.not_compared:
        notes.append(f"not compared, since each node is presumed to have its own: {', '.join(names)}")
    if not (history.rollouts or history.flaps):
        notes.insert(0, "no fact changed")
    return [part for part in parts if part[1]], notes
