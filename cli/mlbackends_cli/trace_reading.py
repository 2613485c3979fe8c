"""Saved traces on their way into views: file after file, with how far it is, and what could not be read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from mlbackends.model.trace import AnyRecord, Malformed, Text
from mlbackends.tracing import fields, reader, viewing
from mlbackends.tracing.aggregate import Together
from mlbackends.tracing.filters import Where, after_first
from mlbackends.tracing.sources import Source, labels
from mlbackends_cli.trace_progress import ReadingProgress

if TYPE_CHECKING:
    from mlbackends.model.trace_views import AnyView
    from mlbackends.tracing.aggregate import Aggregate
    from mlbackends.tracing.walk import Walk

_PER_PLACE = frozenset({"process", "thread", "source"})
"""Fields that differ from call to call, and not among those that are added up together."""


class Logs:
    """Files that are read one after the other, each when its turn comes.

    lines: how many lines of libraries came. unreadable: how many of them could not be read.
    ended: whether all files were read to the end that they have.
    damage: why files could not be read to their ends. Whoever may leave off before the end closes it.
    """

    def __init__(self, names: Sequence[str], *, shows_progress: bool = True) -> None:
        self.names = tuple(names)
        self._shows_progress = shows_progress
        self._progress: ReadingProgress | None = None
        self.lines = self.unreadable = 0
        self.ended = False
        self.damage: list[str] = []

    @property
    def readable(self) -> int:
        """How many lines of libraries could be read."""
        return self.lines - self.unreadable

    def records(self) -> Iterator[AnyRecord]:
        """Yield the records of all files. Raises BadInput where one cannot be opened."""
        for _, record in self.records_with_names():
            yield record

    def records_with_names(self) -> Iterator[tuple[str, AnyRecord]]:
        """Yield the records, each with the name of its file."""
        for (name, chunks), label in zip(self._chunks(), labels(self.names), strict=True):
            for record in reader.records(chunks, log=label):
                if not isinstance(record, Text):
                    self.lines += 1
                    self.unreadable += isinstance(record, Malformed)
                yield name, record

    def aggregate(self) -> "Aggregate":
        """Return the calls of all files, added up. Raises BadInput where one cannot be opened."""
        from mlbackends.tracing.aggregate import Aggregate

        whole = Aggregate()
        for _, chunks in self._chunks():
            whole.add(chunks)
        self._count(whole)
        return whole

    def aggregates(self) -> Together:
        """Return the same, added up for each file by itself."""
        from mlbackends.tracing.aggregate import Aggregate

        parts = []
        for (_, chunks), label in zip(self._chunks(), labels(self.names), strict=True):
            part = Aggregate().add(chunks)
            self._count(part)
            parts.append((label, part))
        return Together(parts)

    def walk(self, walk: "Walk") -> None:
        """Walk through all files. Raises BadInput where one cannot be opened."""
        for (_, chunks), label in zip(self._chunks(), labels(self.names), strict=True):
            walk.add(chunks, label)
        self.unreadable += walk.unreadable
        self.lines += walk.lines

    def _count(self, found: "Aggregate") -> None:
        kinds = found.kinds
        self.unreadable += kinds.get("malformed", 0)
        self.lines += sum(count for kind, count in kinds.items() if kind != "text")

    def close(self) -> None:
        """Take the bar off the terminal, if it is still there."""
        if self._progress is not None:
            self._progress.clear()

    def _chunks(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        self._progress = ReadingProgress(self.names) if self._shows_progress else None
        try:
            for name in self.names:
                source = Source(name)
                if self._progress is not None:
                    self._progress.begin(source)
                try:
                    yield name, source.chunks()
                finally:
                    source.close()
                if source.damage:
                    said = source.damage
                    self.damage.append(said if name in said else f"{name}: {said}")
            self.ended = True
        finally:
            self.close()


def takes_sums(
    wanted: Mapping[str, Mapping[str, Any]], where: Where, skip_first: int, by: Sequence[str] = ()
) -> bool:
    """Tell whether views can be made of calls that were added up, which is twenty times as fast."""
    asked = where.fields | frozenset(fields.known(name) for name in by)
    changing = fields.CHANGING - _PER_PLACE
    return (
        not skip_first
        and not asked & changing
        and all(viewing.takes_aggregates(name) for name in wanted)
    )


def views(
    logs: Logs,
    wanted: Mapping[str, Mapping[str, Any]],
    where: Where,
    skip_first: int = 0,
    by: Sequence[str] = (),
) -> "dict[str, AnyView]":
    """Return views of files. by: what they group by."""
    with closing(logs):
        if takes_sums(wanted, where, skip_first, by):
            asks_source = "source" in where.fields or "source" in map(fields.known, by)
            by_file = asks_source and len(set(logs.names)) > 1
            added_up = logs.aggregates() if by_file else logs.aggregate()
            return viewing.from_aggregate(added_up, wanted, where)
        if takes_sums({}, where, skip_first, by) and all(map(viewing.takes_repeats, wanted)):
            return viewing.from_walk(logs.walk, wanted, where)
        return viewing.views(filter(where, after_first(logs.records(), skip_first)), wanted)


def chosen(logs: Logs, where: Where, skip_first: int = 0) -> Iterator[AnyRecord]:
    """Yield the records that are asked for: the program's own text only where its kind is."""
    wants_text = "kind" in where.fields
    for record in after_first(logs.records(), skip_first):
        if (wants_text or not isinstance(record, Text)) and where(record):
            yield record  # type: ignore[misc]  # what went in comes out


Say = Callable[[str], None]


def tell_problems(logs: Logs, say: Say, *, hint: bool = True) -> None:
    """Say what could not be read."""
    for damage in logs.damage:
        say(damage)
    if logs.unreadable and hint:
        what = "line" if logs.unreadable == 1 else "lines"
        said = "it" if logs.unreadable == 1 else "them"
        say(f"{logs.unreadable:,} {what} could not be read; --list-malformed shows {said}")
