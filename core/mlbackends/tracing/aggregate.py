"""A million lines added up in about a second: equal calls together, each kind of line counted.

Only the first of equal lines is read in full. All others are cut by their tracer to what repeats, the
key, and their time is kept; see `reader`.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Self

from msgspec import structs

from mlbackends.model.registry import load, names
from mlbackends.model.trace import AnyRecord, Call, Malformed, Primitive, Record, Text
from mlbackends.tracing.numbers import is_time
from mlbackends.tracing.prefixes import plain, prefix
from mlbackends.tracing.reader import (
    FORMATS,
    LONGEST_LINE,
    MARK_LENGTH,
    is_cut_right,
    is_resized,
    line_records,
    lines,
    located,
    tracers,
)
from mlbackends.tracing.sources import joined_source

_MOST_KEYS = 200_000
_MOST_PLACES = 4096
_MOST_MALFORMED = 1000
Where = tuple[int | None, int | None, str]
_NOWHERE: Where = (None, None, "")
Taker = Callable[[Any], None]


class Group:
    """Equal calls from one place.

    where: process, thread and source, as in the records. durations: in nanoseconds, in the order of
    the calls; a call without a time has none, and is one of `untimed`.
    """

    __slots__ = ("_head", "_number", "_tail", "durations", "kind", "untimed", "where")

    def __init__(self, kind: str, number: int, line: bytes, where: Where, head: object) -> None:
        """Begin with the first call's number and line, which holds no other call.

        head: what may be the line's start, and is kept elsewhere anyway.
        """
        self.kind = kind
        self.where = where
        self.untimed = 0
        self.durations = array("d")
        self._number = number
        self._head = head if isinstance(head, bytes) and line.startswith(head) else b""
        self._tail = line[len(self._head) :]

    @property
    def record(self) -> Call:
        """The first of the calls, read anew each time: many groups would be many records."""
        found = line_records(self._head + self._tail + b"\n", self._number)
        return next(each for each in found if isinstance(each, Call))

    @property
    def count(self) -> int:
        """How many calls."""
        return len(self.durations) + self.untimed

    def add(self, duration: float | None) -> None:
        """Add a call."""
        if duration is None:
            self.untimed += 1
        else:
            self.durations.append(duration)

    def drop_senseless(self) -> int:
        """Take out what is no time, such as "nan" or "-1", and return how many there were."""
        if is_time(sum(self.durations)) and min(self.durations, default=0) >= 0:
            return 0
        kept = [each for each in self.durations if is_time(each)]
        dropped = len(self.durations) - len(kept)
        self.durations[:] = array("d", kept)
        return dropped


class Note:
    """Equal lines that are no calls: refusals, complaints, what a library reports of itself.

    record: the first of them. count: how many there are.
    """

    __slots__ = ("count", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.count = 0

    def add(self, duration: None) -> None:
        """Add a line."""
        del duration
        self.count += 1


class Aggregate:
    """Adds up logs, one after the other.

    groups: the calls. notes: the other lines of libraries. texts: how many pieces of program text.
    malformed: the first thousand lines that could not be read, of malformed_count.
    """

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.notes: list[Note] = []
        self.texts = 0
        self.lines = 0
        self.malformed: list[Malformed] = []
        self.malformed_count = 0
        self._by_identity: dict[int, Group | Note] = {}
        self._names = list(names(FORMATS))  # the tracer that most lines came from is the first
        self._forget()

    def _forget(self) -> None:
        """Begin anew with takers of times, by what stands before a line and by its key."""
        self._takers: dict[bytes, dict[Hashable, Taker]] = {b"": {}}
        self._count = 0
        self._sorters = {
            name: load(FORMATS, name).Sorter(self._takers[b""]) for name in self._names
        }

    @property
    def kinds(self) -> dict[str, int]:
        """How many records of each kind there are."""
        found: Counter[str] = Counter({"text": self.texts, "malformed": self.malformed_count})
        for group in self.groups:
            found[group.kind] += group.count
        for note in self.notes:
            found[note.record.kind] += note.count
        return {kind: count for kind, count in found.items() if count}

    def add(self, chunks: Iterable[bytes]) -> Self:
        """Add the text of a log, as UTF-8 in pieces cut anywhere."""
        rest = b""
        for chunk in chunks:
            data = rest + chunk if rest else chunk
            end = data.rfind(b"\n") + 1
            self._add_block(data[:end])
            rest = data[end:]
            while len(rest) > LONGEST_LINE:
                self._add_in_full(rest[:LONGEST_LINE])
                rest = rest[LONGEST_LINE:]
        if rest:
            self._add_in_full(rest)
        for group in self.groups:
            self.malformed_count += group.drop_senseless()
        return self

    def _add_block(self, block: bytes) -> None:
        """Add whole lines."""
        if len(block) > LONGEST_LINE and max(map(len, block.split(b"\n"))) >= LONGEST_LINE:
            for line in lines([block]):
                self._add_in_full(line)
            return
        block = plain(block)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        every = block.split(b"\n")
        every.pop()
        start = self.lines + 1
        self.lines += len(every)
        first, sorters = self._names[0], self._sorters
        others: dict[str, list[int]] = {}
        for index in sorters[first].sort(every):
            name, _ = tracers().get(every[index][:MARK_LENGTH], (first, None))
            if name == first:
                self._add_one(every[index], start + index)
            else:
                others.setdefault(name, []).append(index)
        for name, places in others.items():
            for missed in sorters[name].sort([every[index] for index in places]):
                self._add_one(every[places[missed]], start + places[missed])
            if 2 * len(places) > len(every):  # next time this one first
                self._names = [name, *(other for other in self._names if other != name)]

    def _add_one(self, line: bytes, number: int) -> None:
        """Add a line without its end that no sorter took."""
        found = located(line)
        if found is None:
            self.texts += 1
            return
        before, at, cut = found
        taker = None if cut is None else self._takers.get(before, {}).get(cut[0])
        if cut is not None and taker is not None:
            taker(cut[1])
            return
        entry: Group | Note
        if cut is not None and cut[1] is not None and not at and is_resized(line, cut[0]):
            key = str(cut[0], "utf-8", "surrogateescape")  # type: ignore[call-overload]
            entry = self._group(Primitive, key, _NOWHERE, number, line, cut[0])
        else:
            records = list(line_records(line + b"\n", number))
            if cut is None or len(records) != 1 or not is_cut_right(records[0], cut):
                self._keep(records, line)
                return
            entry = self._entry(records[0], line, cut[0])
        taker = entry.durations.append if isinstance(entry, Group) else entry.add
        taker(cut[1])  # type: ignore[arg-type]
        if at and prefix(line[:at]) is None:
            return
        if self._count >= _MOST_KEYS or len(self._takers) >= _MOST_PLACES:
            self._forget()
        self._count += 1
        self._takers.setdefault(before, {})[cut[0]] = taker

    def _add_in_full(self, line: bytes) -> None:
        """Add a line with its end, if it has one."""
        self.lines += 1
        self._keep(list(line_records(line, self.lines)), line)

    def _keep(self, records: list[AnyRecord], line: bytes) -> None:
        for record in records:
            if isinstance(record, Text):
                self.texts += 1
            elif isinstance(record, Malformed):
                self.malformed_count += 1
                if len(self.malformed) < _MOST_MALFORMED:
                    self.malformed.append(record)
            else:
                own = _own_line(record, line if record is records[0] else b"")
                self._entry(record, own).add(record.duration_ns)  # type: ignore[arg-type]

    def _entry(self, record: Record, line: bytes, head: Hashable = b"") -> Group | Note:
        """Return the group or note that a record belongs to; a new one for the first. head: see Group."""
        where = _NOWHERE
        if record.source or record.process is not None or record.thread is not None:
            where = (record.process, record.thread, record.source)
        if isinstance(record, Call):
            return self._group(type(record), record.key, where, record.line_number, line, head)
        identity = hash((type(record), _unstamped(record), where))
        note = self._by_identity.get(identity)
        if note is None:
            note = self._by_identity[identity] = Note(record)
            self.notes.append(note)
        return note

    def _group(
        self, kind: type[Call], key: str, where: Where, number: int, line: bytes, head: Hashable
    ) -> Group:
        identity = hash((kind, key, where))
        group = self._by_identity.get(identity)
        if not isinstance(group, Group):
            group = Group(kind.__name__.lower(), number, line, where, head)
            self._by_identity[identity] = group
            self.groups.append(group)
        return group


def _own_line(record: Record, line: bytes) -> bytes:
    """Return a line that holds a record alone, without its end. line: the one that it is the first in."""
    raw = record.raw.encode("utf-8", "surrogateescape")
    bare = plain(line)
    return bare[: max(0, bare.find(raw))] + raw


def _unstamped(record: Record) -> str:
    """Return a line without its time stamp, which for a line that is no call is all that changes."""
    if record.start_ns is None or record.clock != "epoch":
        return record.raw
    return re.sub(r",\d+[.,]\d+", "", record.raw, count=1)


class Labelled:
    """Equal calls, or lines, of one log. count, durations: as in the aggregate."""

    __slots__ = ("_log", "_one", "count", "durations")

    def __init__(self, one: Any, log: str) -> None:
        self._one, self._log = one, log
        self.count: int = one.count
        self.durations: Sequence[float] = getattr(one, "durations", ())

    @property
    def record(self) -> Record:
        """The first of them, with its log."""
        record: Record = self._one.record
        return structs.replace(record, source=joined_source(self._log, record.source))


class Together:
    """Several logs that were added up, each for itself: what a view takes instead of one aggregate."""

    def __init__(self, parts: Sequence[tuple[str, Aggregate]]) -> None:
        self._parts = parts

    @property
    def groups(self) -> Iterator[Labelled]:
        """The calls."""
        return (Labelled(each, log) for log, part in self._parts for each in part.groups)

    @property
    def notes(self) -> Iterator[Labelled]:
        """The other lines of libraries."""
        return (Labelled(each, log) for log, part in self._parts for each in part.notes)
