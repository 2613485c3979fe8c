"""Logs walked in order, where most lines are not read: calls that came before are known by their key.

A finding needs the order of the calls, the first lines that show it, and sums. So of equal calls from
one place the first ones are given to `add` one by one, like any record. Of the others the time
alone is kept, and given to `add_more` at the end; who needs to know of each says so by `follow`.
"""

import re
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import Any, Protocol

from msgspec import structs

from mlbackends.model.registry import load, names
from mlbackends.model.trace import AnyRecord, Call, Header, Malformed, Record, Text
from mlbackends.tracing.colours import plain
from mlbackends.tracing.labels import joined
from mlbackends.tracing.markers import LENGTH as MARK_LENGTH
from mlbackends.tracing.prefixes import prefix
from mlbackends.tracing.reader import line_records, lines

Follower = Callable[[float], None]
_MOST = 60_000
_ALIASES = 20_000
_READ_AGAIN = 4
"""So many different lines of equal calls are given one by one behind the first; no finding shows more."""


class Taker(Protocol):
    """What walks along, such as the collector of the view `findings`."""

    def add(self, record: Record) -> None:
        """Take in one record."""

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added, in sums."""

    def follow(self, record: Record) -> tuple[Follower, ...]:
        """Return what takes the time of each later call that is equal, in order."""


class _Repeat:
    """Equal calls from one place. end_ns: until when calls began beside the first."""

    __slots__ = ("durations", "end_ns", "followers", "lines", "record")

    def __init__(self, record: Call | None, followers: tuple[Follower, ...], end_ns: float) -> None:
        self.record = record  # None where nobody asks for such calls
        self.followers = followers
        self.end_ns = end_ns
        self.lines: set[bytes] | None = set() if record else None
        self.durations = array("d")

    def is_shown(self, line: bytes, start: int | None) -> bool:
        """Tell whether a call is one of those that are given one by one."""
        if self.lines is not None and line not in self.lines:
            self.lines.add(line)
            if len(self.lines) >= _READ_AGAIN:
                self.lines = None
            return True
        return start is not None and start < self.end_ns


class Walk:
    """Walks through logs and gives what is in them to takers.

    keep: which records are asked for; equal calls from one place have equal answers.
    lines, unreadable: how many records came that are no text, and how many could not be read.
    """

    def __init__(
        self, takers: Sequence[Taker], keep: Callable[[Record], bool] = lambda _: True
    ) -> None:
        self.lines = self.unreadable = 0
        self._takers = tuple(takers)
        self._keep = keep
        self._log = ""
        self._places: dict[bytes, dict[Hashable, _Repeat]] = {}
        self._repeats: list[_Repeat] = []
        self._aliases = 0
        self._ends: dict[tuple[str, int | None, str], float] = {}
        leaves = [
            load("mlbackends.tracing.formats", name) for name in names("mlbackends.tracing.formats")
        ]
        self._by_mark = {
            marker[:MARK_LENGTH]: shortener
            for leaf in leaves
            for shortener in (leaf.Shortener(),)
            for marker in leaf.MARKERS
        }
        markers = (re.escape(marker) for leaf in leaves for marker in leaf.MARKERS)
        self._marker = re.compile(b"|".join(markers))

    def add(self, chunks: Iterable[bytes], log: str = "") -> None:
        """Walk through a log, as UTF-8 in pieces cut anywhere. log: see `reading.records`."""
        self._log = log
        by_mark = self._by_mark
        known = self._places.setdefault(b"", {})
        for number, line in enumerate(lines(chunks), 1):
            shortener = by_mark.get(line[:MARK_LENGTH])
            if shortener is None:
                self._prefixed(line, number)
                continue
            timed = shortener.timed(line)
            if timed is None:
                self._read(line, number)
                continue
            key, duration, start = timed
            repeat = known.get(key)
            if repeat is None:
                repeat = self._other(line, 0, key, known)
            if repeat is None:
                self._first(line, number, 0, b"", timed)
            elif (repeat.lines is None and start is None) or not repeat.is_shown(line, start):
                repeat.durations.append(duration)
                for follower in repeat.followers:
                    follower(duration)
            else:
                self._again(repeat, line, number, duration, start)
        self.finish()

    def finish(self) -> None:
        """Give the sums away, and begin anew."""
        for repeat in self._repeats:
            count = len(repeat.durations)
            self.lines += count
            if count and repeat.record is not None:
                for taker in self._takers:
                    taker.add_more(repeat.record, count, repeat.durations)
        self._repeats.clear()
        own = self._places.get(b"", {})
        own.clear()
        self._places = {b"": own}
        self._aliases = 0

    def _prefixed(self, line: bytes, number: int) -> None:
        """Take in a line that begins with a prefix, or with the program's text, or is such text."""
        found = self._marker.search(line)
        if found is None:
            if (bare := plain(line)) != line and self._marker.search(bare):
                self._read(line, number)
            return
        at = found.start()
        timed = self._by_mark[line[at : at + MARK_LENGTH]].timed(line[at:])
        place = line[:at]
        head, told, end = place.rpartition(b" end ")
        if told:
            place = head
            digits = end.removesuffix(b"] ")
            if not digits.isdigit() or len(digits) > 20:
                timed = None
            elif timed is not None and timed[2] is None:
                timed = timed[0], timed[1], int(digits) - round(timed[1])
        if timed is None:
            self._read(line, number)
            return
        known = self._places.get(place, {})
        repeat = known.get(timed[0]) or self._other(line, at, timed[0], known)
        if repeat is None:
            self._first(line, number, at, place, timed)
        elif repeat.is_shown(line[at:], timed[2]):
            self._again(repeat, line[at:], number, timed[1], timed[2])
        else:
            repeat.durations.append(timed[1])
            for follower in repeat.followers:
                follower(timed[1])

    def _other(
        self, line: bytes, at: int, key: Hashable, known: dict[Hashable, _Repeat]
    ) -> _Repeat | None:
        """Return the calls that a line belongs to whose addresses are other ones."""
        if not known or not (
            short := self._by_mark[line[at : at + MARK_LENGTH]].shorten(line[at:])
        ):
            return None
        found = known.get(short[0])
        if found is not None and self._aliases < _ALIASES:
            self._aliases += 1
            known[key] = found
        return found

    def _read(self, line: bytes, number: int) -> list[AnyRecord]:
        """Read a line in full, and give away what is in it."""
        records = list(line_records(line, number))
        for record in records:
            if isinstance(record, Text):
                continue
            if isinstance(record, Header):
                self.finish()  # a process begins: what was made before is no more
            self._given(record)
        return records

    def _again(
        self, repeat: _Repeat, line: bytes, number: int, duration: float, start: int | None
    ) -> None:
        """Give a call away as a record of its own; it has the signature of those that it is equal to."""
        if repeat.record is None:
            self.lines += 1
            return
        record = structs.replace(
            repeat.record,
            raw=line.rstrip(b"\r\n").decode("utf-8", "surrogateescape"),
            line_number=number,
            duration_ns=duration,
            start_ns=start,
        )
        self.lines += 1
        for taker in self._takers:
            taker.add(record)

    def _given(self, record: AnyRecord) -> None:
        self.lines += 1
        self.unreadable += isinstance(record, Malformed)
        record = self._named(record)
        if isinstance(record, Call) and record.duration_ns is not None:
            start = record.start_ns
            self._ends.setdefault(
                _which(record), -inf if start is None else start + record.duration_ns
            )
        if self._keep(record):
            for taker in self._takers:
                taker.add(record)

    def _named(self, record: Any) -> Any:
        if not self._log:
            return record
        return structs.replace(record, source=joined(self._log, record.source))

    def _first(
        self,
        line: bytes,
        number: int,
        at: int,
        place: bytes,
        timed: tuple[Hashable, float, int | None],
    ) -> None:
        """Read a line whose key was not seen, and remember the key if it was cut rightly."""
        records = self._read(line, number)
        key, duration, start = timed
        short = self._by_mark[line[at : at + MARK_LENGTH]].shorten(line[at:])
        if len(records) != 1 or short is None or not line.endswith(b"\n"):
            return
        record = records[0]
        if not isinstance(record, Call) or (record.duration_ns, record.start_ns) != (
            duration,
            start,
        ):
            return
        if isinstance(short[0], bytes) and short[0] != record.key.encode(
            "utf-8", "surrogateescape"
        ):
            return
        if (at and prefix(line[:at]) is None) or plain(line) != line:
            return
        if len(self._repeats) >= _MOST:
            self.finish()
        record = self._named(record)
        wanted = self._keep(record)
        followers = (
            [each for taker in self._takers for each in taker.follow(record)] if wanted else ()
        )
        repeat = _Repeat(record if wanted else None, tuple(followers), self._ends[_which(record)])
        self._repeats.append(repeat)
        known = self._places.setdefault(place, {})
        known[key] = known[short[0]] = repeat


def _which(record: Call) -> tuple[str, int | None, str]:
    return record.source, record.process, record.key
