"""Logs walked in order, where most lines are not read: calls that came before are known by their key.

A finding needs the order of the calls, the first lines that show it, and sums. So of equal calls from
one place the first ones are given to `add` one by one, like any record. Of the others the time
alone is kept, and given to `add_more` at the end, with the last one's start; who needs to know of each
says so by `follow`.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import Any

from msgspec import structs

from mlbackends.model.trace import AnyRecord, Call, Header, Malformed, Record, Text
from mlbackends.tracing.prefixes import plain, prefix
from mlbackends.tracing.reader import (
    MARK_LENGTH,
    Cut,
    is_cut_right,
    line_records,
    lines,
    located,
    tracers,
    with_log,
)

Follower = Callable[[float], None]
_MOST = 60_000
_END = ord("\n")
_READ_AGAIN = 4
"""So many different lines of equal calls are given one by one behind the first; no finding shows more."""


class _Repeat:
    """Equal calls from one place. end_ns: until when calls began beside the first. start_ns: of the last."""

    __slots__ = ("durations", "end_ns", "followers", "lines", "record", "start_ns")

    def __init__(self, record: Call | None, followers: list[Follower], end_ns: float) -> None:
        self.record = record  # None where nobody asks for such calls
        self.followers = followers
        self.end_ns = end_ns
        self.lines: set[bytes] | None = set() if record else None
        self.durations = array("d")
        self.start_ns: int | None = None

    def is_shown(self, line: bytes, start: int | None) -> bool:
        """Tell whether a call is one of those that are given one by one."""
        if self.lines is not None and line not in self.lines:
            self.lines.add(line)
            if len(self.lines) >= _READ_AGAIN:
                self.lines = None
            return True
        return start is not None and start < self.end_ns


class Walk:
    """Walks through logs and gives what is in them to takers, such as the collector of a view.

    takers: each has `add(record)`, and for equal calls in sums `add_more` or, where it needs no order,
    `add_many(record, count, durations)`. `follow(record)`, where there is one, returns what takes the time
    of each later call that is equal, in order.
    keep: which records are wanted; equal calls from one place have equal answers.
    lines, unreadable: how many records came that are no text, and how many could not be read.
    """

    def __init__(
        self, takers: Sequence[Any], keep: Callable[[Record], bool] = lambda _: True
    ) -> None:
        self.lines = self.unreadable = 0
        self._adders = [taker.add for taker in takers]
        self._adders_of_sums = [getattr(each, "add_more", None) or each.add_many for each in takers]
        self._follow = [taker.follow for taker in takers if hasattr(taker, "follow")]
        self._keep = keep
        self._log = ""
        self._places: dict[bytes, dict[Hashable, _Repeat]] = {b"": {}}
        self._repeats: list[_Repeat] = []
        self._ends: dict[tuple[str, int | None, str], float] = {}

    def add(self, chunks: Iterable[bytes], log: str = "") -> None:
        """Walk through a log, as UTF-8 in pieces cut anywhere. log: see `reader.records`."""
        self._log = log
        leaves = tracers()
        repeats = self._places[b""]
        for number, line in enumerate(lines(chunks), 1):
            at, before, tracer = 0, b"", leaves.get(line[:MARK_LENGTH])
            if tracer is None:
                found = located(line)
                if found is None:
                    if (bare := plain(line)) != line and located(bare):
                        self._read(line, number)
                    continue
                before, at, cut = found
                repeat = None if cut is None else self._places.get(before, {}).get(cut[0])
            else:
                cut = tracer[1].cut(line)
                repeat = None if cut is None else repeats.get(cut[0])
            if cut is None or cut[1] is None or line[-1] != _END:
                self._read(line, number)
            elif repeat is None:
                self._first(line, number, at, before, cut)
            elif (repeat.lines is None and cut[2] is None) or not repeat.is_shown(
                line[at:], cut[2]
            ):
                repeat.durations.append(cut[1])
                repeat.start_ns = cut[2]
                for follower in repeat.followers:
                    follower(cut[1])
            else:
                self.lines += 1
                if repeat.record is not None:
                    raw = line[at:].rstrip(b"\r\n").decode("utf-8", "surrogateescape")
                    self._give(
                        structs.replace(
                            repeat.record,
                            raw=raw,
                            line_number=number,
                            duration_ns=cut[1],
                            start_ns=cut[2],
                        )
                    )
        self.finish()

    def finish(self) -> None:
        """Give the sums away, and begin anew."""
        for repeat in self._repeats:
            count = len(repeat.durations)
            self.lines += count
            if count and repeat.record is not None:
                last = structs.replace(repeat.record, start_ns=repeat.start_ns)
                for add_many in self._adders_of_sums:
                    add_many(last, count, repeat.durations)
        self._repeats.clear()
        own = self._places[b""]
        own.clear()
        self._places = {b"": own}

    def _read(self, line: bytes, number: int) -> list[AnyRecord]:
        """Read a line in full, and give away what is in it."""
        records = [with_log(each, self._log) for each in line_records(line, number)]
        for record in records:
            if isinstance(record, Text):
                continue
            if isinstance(record, Header):
                self.finish()  # a process begins: what was made before is no more, and all calls are first
                self._ends.clear()
            self.lines += 1
            self.unreadable += isinstance(record, Malformed)
            if isinstance(record, Call) and record.duration_ns is not None:
                start = record.start_ns
                end = -inf if start is None else start + record.duration_ns
                self._ends.setdefault(_which(record), end)
            if self._keep(record):
                self._give(record)
        return records

    def _give(self, record: Record) -> None:
        for add in self._adders:
            add(record)

    def _first(self, line: bytes, number: int, at: int, before: bytes, cut: Cut) -> None:
        """Read a line whose key is new, and remember the key if it was cut rightly."""
        records = self._read(line, number)
        record = records[0] if len(records) == 1 else None
        if not isinstance(record, Call) or not is_cut_right(record, cut):
            return
        if (at and prefix(line[:at]) is None) or plain(line) != line:
            return
        if len(self._repeats) >= _MOST:
            self.finish()
        wanted = self._keep(record)
        followers = [each for follow in self._follow for each in follow(record)] if wanted else []
        repeat = _Repeat(record if wanted else None, followers, self._ends[_which(record)])
        self._repeats.append(repeat)
        self._places.setdefault(before, {})[cut[0]] = repeat


def _which(record: Call) -> tuple[str, int | None, str]:
    return record.source, record.process, record.key
