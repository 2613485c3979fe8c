"""Saved traces on their way into views: file after file, with a bar of progress, and what is unreadable."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mlbackends.base.mounts import call
from mlbackends.model.trace import AnyRecord, Call, Malformed, Record, Text
from mlbackends.tracing import fields, reader, viewing
from mlbackends.tracing.filters import Where, after_first
from mlbackends.tracing.sources import Source, labels
from mlbackends.tracing.walk import Walk
from mlbackends_cli.output import log
from mlbackends_cli.terminal import ProgressLine
from mlbackends_cli.text.plain import cleaned, one_line, shortened, without_commands
from mlbackends_cli.trace.listings import middle_left_out

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from mlbackends.model.trace_views import AnyView


#: Fields that differ between equal calls from one place.
_CHANGING = fields.CHANGING - {"process", "thread", "source"}
_LONGEST_NAME = 30


class Logs:
    """Files that are read one after the other, each when its turn comes.

    lines: how many lines of libraries came. unreadable: how many of them could not be read. texts: how
    many other lines.
    ended: whether all files were read to the end that they have.
    damage: why files could not be read to their ends. Whoever may leave off before the end closes it.
    """

    def __init__(self, names: Sequence[str], *, shows_progress: bool = True) -> None:
        self.names = tuple(names)
        self.lines = self.unreadable = self.texts = 0
        self.ended = False
        self.damage: list[str] = []
        self._shows_progress = shows_progress
        self._progress: ReadingProgress | None = None

    @property
    def readable(self) -> int:
        """How many lines of libraries could be read."""
        return self.lines - self.unreadable

    def records_with_names(self) -> Iterator[tuple[str, AnyRecord]]:
        """Yield all records, each with the name of its file. Raises BadInput if one cannot be opened."""
        for name, label, chunks in self._chunks():
            for record in reader.records(chunks, log=label):
                if isinstance(record, Text):
                    self.texts += 1
                else:
                    self.lines += 1
                    self.unreadable += isinstance(record, Malformed)
                yield name, record

    def walk(self, walk: Walk) -> None:
        """Walk through all files. Raises BadInput where one cannot be opened."""
        for _, label, chunks in self._chunks():
            walk.add(chunks, label)
        self.unreadable += walk.unreadable
        self.lines += walk.lines
        self.texts += walk.texts

    def _chunks(self) -> Iterator[tuple[str, str, Iterator[bytes]]]:
        self._progress = ReadingProgress(self.names) if self._shows_progress else None
        try:
            for name, label in zip(self.names, labels(self.names), strict=True):
                source = Source(name)
                if self._progress is not None:
                    self._progress.begin(source)
                with closing(source):
                    yield name, label, source.chunks()
                if damage := source.damage:
                    self.damage.append(damage if name in damage else f"{name}: {damage}")
            self.ended = True
        finally:
            self.close()

    def close(self) -> None:
        """Take the bar off the terminal, if it is still there."""
        if self._progress is not None:
            self._progress.clear()

    def print_problems(self, *, hint: bool = True) -> None:
        """Print to standard error what could not be read."""
        for damage in self.damage:
            log(damage)
        if self.unreadable and hint:
            noun, pronoun = ("line", "it") if self.unreadable == 1 else ("lines", "them")
            lines = f"{self.unreadable:,} {noun} could not be read"
            log(f"{lines}; --list-malformed shows {pronoun}")


def collect(
    logs: Logs, collectors: Sequence[Any], where: Where, skip_first: int = 0, by: Sequence[str] = ()
) -> None:
    """Give the records of files that fit to collectors. by: the fields that they group by.

    Equal calls are put together (`Walk`) unless they differ in what is filtered or grouped by.
    """
    used = where.fields | frozenset(fields.field_name(name) for name in by)
    with closing(logs):
        if not skip_first and not used & _CHANGING and "kind" not in where.fields:
            logs.walk(Walk(collectors, where))
            return
        for record in chosen(logs, where, skip_first):
            for collector in collectors:
                collector.add(record)


def views(
    logs: Logs,
    options: Mapping[str, Mapping[str, Any]],
    where: Where,
    skip_first: int = 0,
    by: Sequence[str] = (),
) -> "dict[str, AnyView]":
    """Return views of files. by: what they group by."""
    collectors = {name: viewing.begin(name, **own) for name, own in options.items()}
    collect(logs, tuple(collectors.values()), where, skip_first, by)
    return {name: collector.result() for name, collector in collectors.items()}


def chosen(logs: Logs, where: Where, skip_first: int = 0) -> Iterator[AnyRecord]:
    """Yield the records that fit; the program's own text only where its kind is named."""
    with_text = "kind" in where.fields
    for record in after_first((record for _, record in logs.records_with_names()), skip_first):
        if (with_text or not isinstance(record, Text)) and where(record):
            yield record  # type: ignore[misc]  # what went in comes out


def raw_lines(raws: Iterable[str]) -> str:
    """Return lines that neither a terminal nor GitHub's runner takes for a command."""
    return without_commands("".join(map(fit_line, raws)))


def fit_line(raw: str) -> str:
    """Return a line fit for a terminal."""
    return cleaned(raw.rstrip("\r\n")) + "\n"


class ReadingProgress(ProgressLine):
    """A bar for all files together; for what has no size, such as a pipe, the amount that was read.

    Shares and rates refer to the files as they are on the disk, compressed or not.
    """

    REFRESHES_PER_SECOND = 10.0

    def __init__(self, names: Sequence[str]) -> None:
        self._count = len(names)
        sizes = [regular_size(sys.stdin if name == "-" else name) for name in names]
        self._total = 0 if None in sizes else sum(filter(None, sizes))
        self._before = self._number = 0
        self._source: Source | None = None
        super().__init__()

    def begin(self, source: Source) -> None:
        """Go on to a file; the one before counts as read to its end."""
        if self._source is not None:
            self._before += self._source.size or self._source.position
        self._source = source
        self._number += 1

    def state(self) -> tuple[float, float, str]:
        """Return the bytes that were read, those of all files or 0, and the name of the file."""
        if self._source is None:
            return 0.0, self._total, ""
        position = self._before + self._source.position
        name = self._source.name
        name = "standard input" if name == "-" else one_line(os.path.basename(name))
        number = f"{self._number} of {self._count}, " if self._count > 1 else ""
        done = min(position, self._total) if self._total else position  # a file may have grown
        return done, self._total, f"reading {number}{middle_left_out(name, _LONGEST_NAME)}"

    def columns(self) -> "list[ProgressColumn]":
        """Return what the line consists of."""
        from rich import progress

        text = progress.TextColumn("{task.description}", markup=False)
        amounts = [progress.DownloadColumn(), progress.TransferSpeedColumn()]
        if not self._total:
            return [text, *amounts]
        share, left = progress.TaskProgressColumn(), progress.TimeRemainingColumn()
        return [text, progress.BarColumn(), share, *amounts, left]


def regular_size(file: Any) -> int | None:
    """Return the bytes of a regular file, a name or a stream; None of others, and where none is there."""
    try:
        status = call(os.stat, file) if isinstance(file, str) else os.fstat(file.fileno())
    except (AttributeError, OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


# ---- what is printed where no call fits the options -------------------------------------------------

_MOST_VALUES = 1000
_MOST_SHOWN = 10
_LONGEST = 80
_LONGEST_COMPARED = 200
_PLURALS = frozenset({"operation", "shape", "dtype", "implementation", "format", "routine"})


class Fitting:
    """A filter that remembers whether anything fitted and, as long as nothing did, what was there.

    calls_only: headers and messages that fit are not enough. executed_only: nor are creations.
    """

    def __init__(self, where: Where, skip_first: int, *, calls_only: bool, executed_only: bool) -> None:
        self.anything = not where.text and not skip_first
        self._inner = where
        self._skip_first = skip_first
        self._calls_only, self._executed_only = calls_only, executed_only
        # Of fields with few values: no times, no whole lines.
        many = {*fields.NUMBERS, *fields.TRUTHS, "raw", "key"} - {"process", "thread"}
        self._by_field: dict[str, dict[str, None]] = {name: {} for name in sorted(where.fields - many)}
        self._readers = {name: fields.read_text(name) for name in self._by_field}
        self.where = where if self.anything else replace(where, test=self._test)

    def _test(self, record: Record) -> bool:
        fits = self._inner(record)
        if self.anything:
            return fits
        if self._executed_only:
            matters = record.executed
        elif self._calls_only:
            matters = isinstance(record, Call)
        else:
            matters = not isinstance(record, Text) or "kind" in self._inner.fields
        if matters:
            self.anything = fits
            for name, reader in self._readers.items():
                values = self._by_field[name]
                if len(values) < _MOST_VALUES and (value := reader(record)):
                    values[value] = None
        return fits

    def message(self) -> str:
        """Return the line for when nothing fitted."""
        noun = "call" if self._calls_only else "line"
        skipped = f"--skip-first {self._skip_first}" if self._skip_first else ""
        if not self._inner.text:
            return f"no {noun} is left after {skipped}: no call comes more often"
        behind = f" after {skipped}" if skipped else ""
        text = one_line(shortened(self._inner.text, _LONGEST_COMPARED))
        # The values of the field that keeps the expression from fitting, the most similar first.
        compared = self._inner.equals or tuple((name, "") for name in self._by_field)
        unmet = ((name, value) for name, value in compared if value not in self._by_field.get(name, (value,)))
        name, wanted = next(unmet, ("", ""))
        import difflib

        def unlikeness(value: str) -> tuple[float, str]:
            left, right = (each[:_LONGEST_COMPARED].lower() for each in (wanted, value))
            return -difflib.SequenceMatcher(None, left, right).ratio(), value

        values = sorted(self._by_field.get(name, ()), key=unlikeness)
        if values:
            behind += f"; {name}{'s here are' if name in _PLURALS else ' here is'}: "
            behind += ", ".join(one_line(shortened(value, _LONGEST)) for value in values[:_MOST_SHOWN])
        if len(values) > _MOST_SHOWN:
            behind += f" and {len(values) - _MOST_SHOWN:,} more"
        return f"no {noun} fits --where '{text}'{behind}"
