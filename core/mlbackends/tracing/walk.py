"""Logs walked in order, where most lines are not read: calls that came before are known by their key.

A finding needs the order of the calls, the first lines that show it, and sums. So of equal calls from
one place the first ones are given to `add` one by one, like any record. Of the others the time
alone is kept, and given to `add_more` at the end, with the last one's start; who needs to know of each
says so by `follow` or `follow_lines`.
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
    is_cut_right,
    line_records,
    lines,
    located,
    tracers,
    with_log,
)

Follower = Callable[[float], None]
LineFollower = Callable[[bytes, int, float, int | None], None]
_MOST = 60_000
_END = ord("\n")
#: So many different lines of equal calls are given one by one behind the first; no finding shows more.
#:
#: Of the calls that are new behind so many others, the first alone: these have shown enough.
_READ_AGAIN, _MOST_READ_AGAIN = 4, 1000


class _Repeat:
    """Equal calls from one place. There are many, each far away in memory, so that they are small.

    end_ns: until when calls began beside the first; with `lines`, who is given one by one. shown, durations:
    the times of these and of the others. start_ns: of the last.
    """

    __slots__ = (
        *("durations", "end_ns", "followers", "line_followers", "lines", "record", "show"),
        *("shown", "start_ns"),
    )

    def __init__(
        self, record: Call, show: Sequence[Callable[[Record], None]], each: Sequence[LineFollower]
    ) -> None:
        self.record = record
        self.show = show
        self.line_followers = each
        self.followers: tuple[Follower, ...] = ()
        self.end_ns = -inf
        self.lines: set[bytes] | None = None
        self.shown = array("d", [record.duration_ns or 0.0])
        self.durations = array("d")
        self.start_ns = record.start_ns

    def take(self, line: bytes, number: int, duration: float, start: int | None) -> None:
        """Take in a call; those that are new show it."""
        for each in self.line_followers:
            each(line, number, duration, start)
        self.start_ns = start
        is_new = start is not None and start < self.end_ns
        if self.lines is not None and line not in self.lines:
            is_new = True
            self.lines.add(line)
            if len(self.lines) >= _READ_AGAIN:
                self.lines = None
        if is_new:
            self.shown.append(duration)
            record = repeated(self.record, line, number, duration, start)
            for add in self.show:
                add(record)
            return
        self.durations.append(duration)
        for follower in self.followers:
            follower(duration)


class Walk:
    """Walks through logs and gives what is in them to takers, such as the collector of a view.

    takers: each has `add(record)`, and for equal calls in sums `add_more`, after the first few, or, where
    it needs no order, `add_many(record, count, durations)`, for all. `follow(record)`, where there
    is one, returns what takes the time of each later call that is equal, in order; `follow_lines(record)`,
    what takes its line, number, time and start instead of sums.
    is_chosen: which records are counted; equal calls from one place have equal answers.
    lines, unreadable: how many records came that are no text, and how many could not be read. texts: how
    many are text.
    """

    def __init__(
        self, takers: Sequence[Any], is_chosen: Callable[[Record], bool] = lambda _: True
    ) -> None:
        self.lines = self.unreadable = self.texts = 0
        ordered = [taker for taker in takers if hasattr(taker, "add_more")]
        summed = [taker for taker in takers if taker not in ordered and hasattr(taker, "add_many")]
        self._adders = [taker.add for taker in takers]
        self._first_adders = [taker.add for taker in takers if taker not in summed]
        self._ordered = [taker.add for taker in ordered]
        self._adders_of_rest = [taker.add_more for taker in ordered]
        self._adders_of_all = [taker.add_many for taker in summed]
        self._follow = [taker.follow for taker in takers if hasattr(taker, "follow")]
        self._follow_lines = [
            taker.follow_lines for taker in takers if hasattr(taker, "follow_lines")
        ]
        self._is_chosen = is_chosen
        self._log = ""
        self._places: dict[bytes, dict[Hashable, LineFollower]] = {b"": {}}
        self._count = 0
        self._repeats: list[_Repeat] = []
        self._ends: dict[tuple[str, int | None, str], float] = {}

    def add(self, chunks: Iterable[bytes], log: str = "") -> None:
        """Walk through a log, as UTF-8 in pieces cut anywhere. log: see `reader.records`."""
        self._log = log
        cutters = {mark: leaf.cut for mark, (_, leaf) in tracers().items()}
        takers = self._places[b""]
        repeats = 0
        for number, line in enumerate(lines(chunks), 1):
            cutter = cutters.get(line[:MARK_LENGTH])
            cut = None if cutter is None else cutter(line)
            follower = None if cut is None else takers.get(cut[0])
            if cut is None or follower is None or cut[1] is None or line[-1] != _END:
                self._add(line, number)
            else:
                repeats += 1
                follower(line, number, cut[1], cut[2])
        self.lines += repeats
        self.finish()

    def _add(self, line: bytes, number: int) -> None:
        """Add a line that has something before it, or whose key is new."""
        found = located(line)
        if found is None:
            if (bare := plain(line)) != line and located(bare):
                self._pass_on(self._read(line, number), self._adders)
            else:
                self.texts += 1
            return
        before, at, cut = found
        if cut is None or cut[1] is None or line[-1] != _END:
            self._pass_on(self._read(line, number), self._adders)
        elif follower := self._places.get(before, {}).get(cut[0]):
            self.lines += 1
            follower(line[at:], number, cut[1], cut[2])
        else:
            records = self._read(line, number)
            record = records[0] if len(records) == 1 else None
            if (
                not isinstance(record, Call)
                or not is_cut_right(record, cut)
                or (at and prefix(line[:at]) is None)
                or plain(line) != line
            ):
                self._pass_on(records, self._adders)
                return
            self._pass_on(records, self._first_adders)
            if self._count >= _MOST:
                self.finish()
            self._count += 1
            self._places.setdefault(before, {})[cut[0]] = self._taker(record)

    def _taker(self, record: Call) -> LineFollower:
        """Return what takes in calls that are equal to one that was given away."""
        if not self._is_chosen(record):
            return lambda *_: None
        found = tuple([each for follow in self._follow_lines if (each := follow(record))])
        if len(found) == 1 and not self._ordered and not self._adders_of_all:
            only: LineFollower = found[0]
            return only
        repeat = _Repeat(record, self._ordered, found)
        repeat.followers = tuple([each for follow in self._follow for each in follow(record)])
        if self._ordered:
            repeat.end_ns = self._ends[_call_key(record)]
            if len(self._repeats) < _MOST_READ_AGAIN:
                repeat.lines = set()
        self._repeats.append(repeat)
        return repeat.take

    def finish(self) -> None:
        """Give the sums away, and begin anew."""
        for repeat in self._repeats:
            rest, every = repeat.durations, repeat.shown + repeat.durations
            last = structs.replace(repeat.record, start_ns=repeat.start_ns)
            for add_many in self._adders_of_all:
                add_many(last, len(every), every)
            for add_more in self._adders_of_rest if rest else ():
                add_more(last, len(rest), rest)
        self._repeats.clear()
        self._count = 0
        own = self._places[b""]
        own.clear()
        self._places = {b"": own}

    def _read(self, line: bytes, number: int) -> list[AnyRecord]:
        """Return what is in a line."""
        return [with_log(each, self._log) for each in line_records(line, number)]

    def _pass_on(
        self, records: list[AnyRecord], adders: Sequence[Callable[[Record], None]]
    ) -> None:
        """Give records away."""
        for record in records:
            if isinstance(record, Text):
                self.texts += 1
                continue
            if isinstance(record, Header):
                self.finish()  # a process begins: what was made before is no more, and all calls are first
                self._ends.clear()
            self.lines += 1
            self.unreadable += isinstance(record, Malformed)
            if self._ordered and isinstance(record, Call) and record.duration_ns is not None:
                start = record.start_ns
                end = -inf if start is None else start + record.duration_ns
                self._ends.setdefault(_call_key(record), end)
            if self._is_chosen(record):
                for add in adders:
                    add(record)


def repeated(
    record: Call, line: bytes, number: int, duration_ns: float, start_ns: int | None
) -> Call:
    """Return the record of a call that is equal to one that was read, from its line."""
    raw = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
    return structs.replace(
        record,
        raw=raw,
        line_number=number,
        duration_ns=duration_ns,
        start_ns=start_ns,
        clock="" if start_ns is None else "epoch",
    )


def _call_key(record: Call) -> tuple[str, int | None, str]:
    return record.source, record.process, record.key
