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
    Cut,
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
_READ_AGAIN, _MOST_READ_AGAIN = 4, 1000
"""So many different lines of equal calls are given one by one behind the first; no finding shows more.

Of the calls that are new behind so many others, the first alone: these have shown enough.
"""


class _Repeat:
    """Equal calls from one place.

    end_ns: until when calls began beside the first; with `lines`, who is given one by one. shown, durations:
    the times of these and of the others. start_ns: of the last.
    """

    __slots__ = (
        *("durations", "end_ns", "followers", "line_followers", "lines", "record", "shown"),
        "start_ns",
    )

    def __init__(self, record: Call | None, end_ns: float, *, is_shown: bool) -> None:
        self.record = record  # None where nobody asks for such calls
        self.followers: list[Follower] = []
        self.line_followers: list[LineFollower] = []
        self.end_ns = end_ns
        self.lines: set[bytes] | None = set() if is_shown else None
        self.shown = array("d")
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

    takers: each has `add(record)`, and for equal calls in sums `add_more`, after the first few, or, where
    it needs no order, `add_many(record, count, durations)`, after the first. `follow(record)`, where there
    is one, returns what takes the time of each later call that is equal, in order; `follow_lines(record)`,
    what takes its line, number, time and start instead of sums.
    keep: which records are wanted; equal calls from one place have equal answers.
    lines, unreadable: how many records came that are no text, and how many could not be read. texts: how
    many are text.
    """

    def __init__(
        self, takers: Sequence[Any], keep: Callable[[Record], bool] = lambda _: True
    ) -> None:
        self.lines = self.unreadable = self.texts = 0
        self._adders = [taker.add for taker in takers]
        ordered = [taker for taker in takers if hasattr(taker, "add_more")]
        summed = [taker for taker in takers if taker not in ordered]
        self._ordered = [taker.add for taker in ordered]
        self._adders_of_rest = [taker.add_more for taker in ordered]
        self._adders_of_all = [taker.add_many for taker in summed if hasattr(taker, "add_many")]
        self._follow = [taker.follow for taker in takers if hasattr(taker, "follow")]
        self._needs_times = bool(self._adders_of_rest or self._adders_of_all)
        self._follow_lines = [
            taker.follow_lines for taker in takers if hasattr(taker, "follow_lines")
        ]
        self._keep = keep
        self._log = ""
        self._places: dict[bytes, dict[Hashable, _Repeat]] = {b"": {}}
        self._repeats: list[_Repeat] = []
        self._ends: dict[tuple[str, int | None, str], float] = {}

    def add(self, chunks: Iterable[bytes], log: str = "") -> None:
        """Walk through a log, as UTF-8 in pieces cut anywhere. log: see `reader.records`."""
        self._log = log
        cutters = {mark: leaf.cut for mark, (_, leaf) in tracers().items()}
        repeats = self._places[b""]
        for number, line in enumerate(lines(chunks), 1):
            at, before, cutter = 0, b"", cutters.get(line[:MARK_LENGTH])
            if cutter is None:
                found = located(line)
                if found is None:
                    if (bare := plain(line)) != line and located(bare):
                        self._read(line, number)
                    else:
                        self.texts += 1
                    continue
                before, at, cut = found
                repeat = None if cut is None else self._places.get(before, {}).get(cut[0])
            else:
                cut = cutter(line)
                repeat = None if cut is None else repeats.get(cut[0])
            if cut is None or cut[1] is None or line[-1] != _END:
                self._read(line, number)
            elif repeat is None:
                self._first(line, number, at, before, cut)
            else:
                repeat.start_ns = cut[2]
                for take in repeat.line_followers:
                    take(line[at:] if at else line, number, cut[1], cut[2])
                if (repeat.lines is None and cut[2] is None) or not repeat.is_shown(
                    line[at:], cut[2]
                ):
                    if self._needs_times:
                        repeat.durations.append(cut[1])
                    else:
                        self.lines += 1
                    for follower in repeat.followers:
                        follower(cut[1])
                else:
                    repeat.shown.append(cut[1])
                    assert repeat.record is not None
                    shown = repeated(repeat.record, line[at:], number, cut[1], cut[2])
                    for add in self._ordered:
                        add(shown)
        self.finish()

    def finish(self) -> None:
        """Give the sums away, and begin anew."""
        for repeat in self._repeats:
            rest, every = repeat.durations, repeat.shown + repeat.durations
            self.lines += len(every)
            if every and repeat.record is not None:
                last = structs.replace(repeat.record, start_ns=repeat.start_ns)
                for add_many in self._adders_of_all:
                    add_many(last, len(every), every)
                for add_more in self._adders_of_rest if rest else ():
                    add_more(last, len(rest), rest)
        self._repeats.clear()
        own = self._places[b""]
        own.clear()
        self._places = {b"": own}

    def _read(self, line: bytes, number: int) -> list[AnyRecord]:
        """Read a line in full, and give away what is in it."""
        records = [with_log(each, self._log) for each in line_records(line, number)]
        for record in records:
            if isinstance(record, Text):
                self.texts += 1
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
                for add in self._adders:
                    add(record)
        return records

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
        has_order = wanted and bool(self._ordered)
        end_ns = self._ends[_which(record)] if has_order else -inf
        is_shown = has_order and len(self._repeats) < _MOST_READ_AGAIN
        repeat = _Repeat(record if wanted else None, end_ns, is_shown=is_shown)
        if wanted:
            repeat.followers = [each for follow in self._follow for each in follow(record)]
            takes = (follow(record) for follow in self._follow_lines)
            repeat.line_followers = [take for take in takes if take]
        self._repeats.append(repeat)
        self._places.setdefault(before, {})[cut[0]] = repeat


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


def _which(record: Call) -> tuple[str, int | None, str]:
    return record.source, record.process, record.key
