"""A million lines added up in about a second: equal calls together, each kind of line counted.

Only the first of equal lines is read in full. All others are cut by the tracer's shortener to what
repeats, looked up, and their time is kept. What it cannot cut takes the slow way through `reading`.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Self

from mlbackends.model.registry import load, names
from mlbackends.model.trace import AnyRecord, Call, Malformed, Primitive, Record, Text
from mlbackends.tracing.colours import plain
from mlbackends.tracing.durations import is_time
from mlbackends.tracing.markers import LENGTH as MARK_LENGTH
from mlbackends.tracing.prefixes import prefix
from mlbackends.tracing.reader import LONGEST_LINE, line_records, lines
from mlbackends.tracing.statistics import Statistics, statistics

_KEYS_LIMIT = 200_000
_PLACES_LIMIT = 4096
_FRONTS_LIMIT = 10_000
_MALFORMED_LIMIT = 1000
Where = tuple[int | None, int | None, str]
_NOWHERE: Where = (None, None, "")
Taker = Callable[[Any], None]


class Group:
    """Equal calls from one place.

    where: process, thread and source, as in the records. durations: in nanoseconds, in the order of
    the calls; a call without a time has none, and is one of `untimed`.
    """

    __slots__ = ("_head", "_number", "_tail", "durations", "kind", "untimed", "where")

    def __init__(
        self, kind: str, number: int, line: bytes, where: Where, head: bytes = b""
    ) -> None:
        """Begin with the first call's line, which holds no other call, and its number.

        head: the line's start, if somebody keeps it anyway.
        """
        self.kind = kind
        self.where = where
        self.untimed = 0
        self.durations = array("d")
        self._number = number
        self._head = head if line.startswith(head) else b""
        self._tail = line[len(self._head) :]

    @property
    def record(self) -> Call:
        """The first of the calls, read anew each time: many groups would be many records."""
        found = line_records(self._head + self._tail, self._number)
        return next(each for each in found if isinstance(each, Call))

    @property
    def count(self) -> int:
        """How many calls."""
        return len(self.durations) + self.untimed

    def statistics(self) -> Statistics:
        """Return sum, extremes and exact median of the times."""
        return statistics([self.durations])

    def drop_senseless(self) -> int:
        """Take out what is no time, such as "nan" or "-1", and return how many there were."""
        if is_time(sum(self.durations)) and min(self.durations, default=0) >= 0:
            return 0
        kept = [each for each in self.durations if is_time(each)]
        dropped = len(self.durations) - len(kept)
        self.durations[:] = array("d", kept)
        return dropped

    def add(self, duration: float | None) -> None:
        """Add a call."""
        if duration is None:
            self.untimed += 1
        else:
            self.durations.append(duration)


class Note:
    """Lines that are no calls and say the same: refusals, complaints, what a library tells of itself.

    record: the first of them. count: how many there are.
    """

    __slots__ = ("count", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.count = 0

    def add(self, duration: None = None) -> None:
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
        self._slow: dict[int, Group | Note] = {}
        self._fast: dict[bytes, dict[Hashable, Taker]] = {b"": {}}
        self._keys = 0
        self._fronts: set[bytes] = set()
        leaves = [
            load("mlbackends.tracing.formats", name) for name in names("mlbackends.tracing.formats")
        ]
        self._shorteners = [leaf.Shortener() for leaf in leaves]
        self._by_mark = {
            marker[:MARK_LENGTH]: shortener
            for leaf, shortener in zip(leaves, self._shorteners, strict=True)
            for marker in leaf.MARKERS
        }
        markers = (re.escape(marker) for leaf in leaves for marker in leaf.MARKERS)
        self._marker = re.compile(b"|".join(markers))

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
                self._slowly(rest[:LONGEST_LINE])
                rest = rest[LONGEST_LINE:]
        if rest:
            self._slowly(rest)
        for group in self.groups:
            self.malformed_count += group.drop_senseless()
        return self

    def _add_block(self, block: bytes) -> None:
        """Add whole lines."""
        if len(block) > LONGEST_LINE and max(map(len, block.split(b"\n"))) >= LONGEST_LINE:
            for line in lines([block]):
                self._slowly(line)
            return
        block = plain(block)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        every = block.split(b"\n")
        every.pop()
        self._add(every)

    def _add(self, lines: list[bytes]) -> None:
        start = self.lines + 1
        self.lines += len(lines)
        takers = self._fast[b""]
        first = self._shorteners[0]
        others: dict[int, list[int]] = {}
        for index in first.take(lines, takers):
            line = lines[index]
            shortener = self._by_mark.get(line[:MARK_LENGTH])
            if shortener is first:
                self._plain(line, start + index, first)
            elif shortener is None:
                self._prefixed(line, start + index)
            else:
                others.setdefault(self._shorteners.index(shortener), []).append(index)
        for which, places in others.items():
            shortener = self._shorteners[which]
            for missed in shortener.take([lines[index] for index in places], takers):
                index = places[missed]
                self._plain(lines[index], start + index, shortener)
        for which, places in others.items():
            if 2 * len(places) > len(lines):  # next time this one first
                self._shorteners.insert(0, self._shorteners.pop(which))
                break

    def _plain(self, line: bytes, number: int, shortener: Any) -> None:
        """Add a line that begins with a marker."""
        short = shortener.shorten(line)
        takers = self._fast[b""]
        if short is not None and short[0] in takers:
            takers[short[0]](short[1])
        elif short is None or not self._resized(line, number, shortener, *short):
            self._first(line, number, b"", 0, short)

    def _resized(
        self, line: bytes, number: int, shortener: Any, key: Any, duration: float | None
    ) -> bool:
        """Take in a call that differs in its sizes alone from one that was read, without reading it."""
        if duration is None or not is_time(duration) or self._keys >= _KEYS_LIMIT:
            return False
        if shortener.front(key) not in self._fronts:
            return False
        identity = hash((Primitive, key.decode("utf-8", "surrogateescape"), _NOWHERE))
        group = self._slow.get(identity)
        if not isinstance(group, Group):
            group = Group("primitive", number, line + b"\n", _NOWHERE, key)
            self.groups.append(group)
            self._slow[identity] = group
        group.add(duration)
        self._keys += 1
        self._fast[b""][key] = group.durations.append
        return True

    def _prefixed(self, line: bytes, number: int) -> None:
        """Add a line that begins with a prefix, or with the program's text, or is such text."""
        found = self._marker.search(line)
        if found is None:
            self.texts += 1
            return
        at = found.start()
        before = line[:at]
        head, told, end = before.rpartition(b" end ")
        if told and end[:-2].isdigit() and end[-2:] == b"] " and len(end) < 23:
            before = head
        short = self._by_mark[line[at : at + MARK_LENGTH]].shorten(line[at:])
        takers = self._fast.get(before)
        if short is None or takers is None or short[0] not in takers:
            self._first(line, number, before, at, short)
        else:
            takers[short[0]](short[1])

    def _first(
        self, line: bytes, number: int, before: bytes, at: int, short: tuple[Hashable, Any] | None
    ) -> None:
        """Read a line whose key was not seen, and remember the key if it was cut rightly."""
        records = list(line_records(line + b"\n", number))
        if len(records) != 1 or short is None or not self._is_right(records[0], *short):
            self._keep(records, line)
            return
        key, duration = short
        taker = self._taker(records[0], line, key if isinstance(key, bytes) else b"")
        taker.add(duration)
        if at and prefix(line[:at]) is None:
            return
        if not at and isinstance(records[0], Primitive):
            front = self._by_mark[line[:MARK_LENGTH]].front(key)
            if front and len(self._fronts) < _FRONTS_LIMIT:
                self._fronts.add(front)
        if self._keys >= _KEYS_LIMIT or len(self._fast) >= _PLACES_LIMIT:
            self._fast = {b"": {}}
            self._keys = 0
        self._keys += 1
        taken = taker.durations.append if isinstance(taker, Group) else taker.add
        self._fast.setdefault(before, {})[key] = taken

    @staticmethod
    def _is_right(record: AnyRecord, key: Hashable, duration: float | None) -> bool:
        """Tell whether a line was cut as it should be; decimal commas mislead a shortener."""
        if isinstance(record, Text | Malformed) or record.duration_ns != duration:
            return False
        if not isinstance(record, Call):
            return duration is None
        return not isinstance(key, bytes) or key == record.key.encode("utf-8", "surrogateescape")

    def _slowly(self, line: bytes) -> None:
        self.lines += 1
        self._keep(list(line_records(line, self.lines)), line)

    def _keep(self, records: list[AnyRecord], line: bytes) -> None:
        for record in records:
            if isinstance(record, Text):
                self.texts += 1
            elif isinstance(record, Malformed):
                self.malformed_count += 1
                if len(self.malformed) < _MALFORMED_LIMIT:
                    self.malformed.append(record)
            else:
                own = _own_line(record, line if record is records[0] else b"")
                self._taker(record, own, b"").add(record.duration_ns)

    def _taker(self, record: AnyRecord, line: bytes, head: bytes) -> Any:
        """Return the group or note that a record belongs to; a new one if it is the first."""
        where = _NOWHERE
        if record.source or record.process is not None or record.thread is not None:
            where = (record.process, record.thread, record.source)
        said = record.key if isinstance(record, Call) else _said(record)
        identity = hash((type(record), said, where))
        found = self._slow.get(identity)
        if found is not None:
            return found
        if isinstance(record, Call):
            group = Group(record.kind, record.line_number, line + b"\n", where, head)
            self.groups.append(group)
            self._slow[identity] = group
            return group
        note = Note(record)
        self.notes.append(note)
        self._slow[identity] = note
        return note


def _own_line(record: Record, line: bytes) -> bytes:
    """Return a line that holds a record alone, without its end. line: the one that it is the first in."""
    raw = record.raw.encode("utf-8", "surrogateescape")
    bare = plain(line)
    return bare[: max(0, bare.find(raw))] + raw


def _said(record: Record) -> str:
    """Return a line without its time stamp, which for a line that is no call is all that changes."""
    if record.start_ns is None or record.clock != "epoch":
        return record.raw
    return re.sub(r",\d+[.,]\d+", "", record.raw, count=1)
