"""A million lines added up in about a second: equal calls together, each kind of line counted.

Only the first of equal lines is read in full. All others are cut by their tracer to what repeats, the
key, and their time is kept; see `reader`.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import chain
from typing import Any, Self

from mlbackends.base.display import Displayed
from mlbackends.base.registry import load, names
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
    with_log,
)

_MOST_KEYS = 200_000
_MOST_PLACES = 4096
_MOST_MALFORMED = 1000
Origin = tuple[int | None, int | None, str]
_NOWHERE: Origin = (None, None, "")
Taker = Callable[[Any], None]


class Group:
    """Equal calls from one place, or equal lines that are no calls.

    where: process, thread and source, as in the records. durations: in nanoseconds, in the order of
    the calls; a call without a time has none, and is one of `untimed`.
    """

    __slots__ = ("_head", "_log", "_number", "_tail", "durations", "kind", "untimed", "where")

    def __init__(
        self, kind: type[Record], number: int, line: bytes, where: Origin, head: object, log: str
    ) -> None:
        """Begin with the first call's number and line, which holds no other call.

        head: what may be the line's start, and is kept elsewhere anyway.
        """
        self.kind = kind.__name__.lower()
        self.where = where
        self.untimed = 0
        self.durations = array("d")
        self._log = log
        self._number = number
        self._head = head if isinstance(head, bytes) and line.startswith(head) else b""
        self._tail = line[len(self._head) :]

    @property
    def record(self) -> Record:
        """The first of the calls, read anew each time: many groups would be many records."""
        found = line_records(self._head + self._tail + b"\n", self._number)
        record = next(each for each in found if each.kind == self.kind)
        return with_log(record, self._log)

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


class Aggregate(Displayed):
    """Adds up logs, one after the other.

    log: what to call them in the records' `source`, where there are several aggregates.
    groups: the calls. notes: the other lines of libraries. texts: how many pieces of program text.
    malformed: the first thousand lines that could not be read, of malformed_count.
    """

    def __init__(self, log: str = "") -> None:
        self.log = log
        self.groups: list[Group] = []
        self.notes: list[Group] = []
        self.texts = 0
        self.lines = 0
        self.malformed: list[Malformed] = []
        self.malformed_count = 0
        self._by_identity: dict[int, Group] = {}
        self._names = list(names(FORMATS))  # the tracer that most lines came from is the first
        self._forget()

    def glance(self) -> str:
        """Return how many lines and different calls it has."""
        return f"aggregate: {self.lines:,} lines, {len(self.groups):,} different calls"

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
        for group in chain(self.groups, self.notes):
            found[group.kind] += group.count
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
            times = group.durations
            # What is no time, such as "nan" or "-1", came in by the fast way.
            if not is_time(sum(times)) or min(times, default=0) < 0:
                self.malformed_count += len(times)
                times[:] = array("d", filter(is_time, times))
                self.malformed_count -= len(times)
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
        by_tracer: dict[str, list[int]] = {}
        for index in sorters[first].sort(every):
            name, _ = tracers().get(every[index][:MARK_LENGTH], (first, None))
            if name == first:
                self._add_one(every[index], start + index)
            else:
                by_tracer.setdefault(name, []).append(index)
        for name, places in by_tracer.items():
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
        if cut is not None and cut[1] is not None and not at and is_resized(line, cut[0]):
            key = str(cut[0], "utf-8", "surrogateescape")  # type: ignore[call-overload]
            group = self._group(Primitive, key, _NOWHERE, number, line, cut[0])
        else:
            records = list(line_records(line + b"\n", number))
            if cut is None or len(records) != 1 or not is_cut_right(records[0], cut):
                self._add_records(records, line)
                return
            group = self._group_of(records[0], line, cut[0])
        group.add(cut[1])
        taker = group.add if cut[1] is None else group.durations.append
        if at and prefix(line[:at]) is None:
            return
        if self._count >= _MOST_KEYS or len(self._takers) >= _MOST_PLACES:
            self._forget()
        self._count += 1
        self._takers.setdefault(before, {})[cut[0]] = taker

    def _add_in_full(self, line: bytes) -> None:
        """Add a line with its end, if it has one."""
        self.lines += 1
        self._add_records(list(line_records(line, self.lines)), line)

    def _add_records(self, found: list[AnyRecord], line: bytes) -> None:
        for record in found:
            if isinstance(record, Text):
                self.texts += 1
            elif isinstance(record, Malformed):
                self.malformed_count += 1
                if len(self.malformed) < _MOST_MALFORMED:
                    self.malformed.append(record)
            else:
                # A group's line holds one record alone, with what stands before the first.
                raw = record.raw.encode("utf-8", "surrogateescape")
                bare = plain(line) if record is found[0] else b""
                own = bare[: max(0, bare.find(raw))] + raw
                self._group_of(record, own).add(record.duration_ns)

    def _group_of(self, record: Record, line: bytes, head: Hashable = b"") -> Group:
        """Return the group that a record belongs to; a new one for the first. head: see Group."""
        where = _NOWHERE
        if record.source or record.process is not None or record.thread is not None:
            where = (record.process, record.thread, record.source)
        key = record.key if isinstance(record, Call) else record.raw
        if not isinstance(record, Call) and record.clock == "epoch":
            # Of a line that is no call, only the time stamp changes.
            key = re.sub(r",\d+[.,]\d+", "", key, count=1)
        return self._group(type(record), key, where, record.line_number, line, head)

    def _group(
        self, kind: type[Record], key: str, where: Origin, number: int, line: bytes, head: Hashable
    ) -> Group:
        identity = hash((kind, key, where))
        group = self._by_identity.get(identity)
        if group is None:
            group = Group(kind, number, line, where, head, self.log)
            self._by_identity[identity] = group
            (self.groups if issubclass(kind, Call) else self.notes).append(group)
        return group
