"""The path of a large log into views and exports: equal calls are read once, of the others only the time.

Most lines of a log are calls that came before with another time. A tracer cuts a line to what repeats,
its key, and its time; only the first line of each key is read with the grammar. Collectors that need
each call, in order, offer `follow`; the others get sums.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from msgspec import structs

from mlbackends.model.trace import (
    AnyRecord,
    Call,
    Check,
    Dispatch,
    Header,
    Malformed,
    Message,
    Record,
    Text,
)
from mlbackends.tracing.numbers import is_stamp
from mlbackends.tracing.prefixes import plain, prefix
from mlbackends.tracing.reader import (
    MARK_LENGTH,
    Cut,
    is_cut_right,
    line_records,
    lines,
    marker_search,
    tracers,
    with_log,
)

#: Takes a later call that is equal to one that was added: its line, number, duration and start.
Follower = Callable[[bytes, int, float | None, int | None], None]
#: Different calls that are remembered; then the sums are handed out and all begins anew.
_MOST_CALLS = 60_000
_NEWLINE = ord("\n")


class _Repeats:
    """Later calls that are equal to one from the same place: their times, and the start of the last."""

    __slots__ = ("durations", "followers", "record", "start_ns", "untimed")

    def __init__(self, record: Record, followers: Sequence[Follower]) -> None:
        self.record, self.followers = record, followers
        self.durations = array("d")
        self.untimed = 0
        self.start_ns = record.start_ns

    def take(self, line: bytes, number: int, duration: float | None, start: int | None) -> None:
        """Take in a call."""
        self.start_ns = start
        if duration is None:
            self.untimed += 1
        else:
            self.durations.append(duration)
        for follow in self.followers:
            follow(line, number, duration, start)


class Walk:
    """Walks through logs and gives what is in them to collectors, such as those of views.

    Each has `add(record)`. By `add_many(record, count, durations)` all calls but the first that are equal
    come as sums when the walk ends, with the start of the last. `follow(record)` returns a Follower for
    them, or None, where their order matters. A collector without these methods gets a record for each call.

    is_chosen: which records are counted; equal calls from one place have equal answers.
    lines, unreadable: the number of lines of libraries, and of those that could not be read. texts: the
    number of other lines.
    """

    def __init__(
        self, collectors: Sequence[Any], is_chosen: Callable[[Record], bool] = lambda _: True
    ) -> None:
        self.lines = self.unreadable = self.texts = 0
        self._collectors = collectors
        self._adders = [collector.add for collector in collectors]
        self._summers = [collector.add_many for collector in collectors if hasattr(collector, "add_many")]
        self._is_chosen = is_chosen
        self._log = ""
        self._places: dict[bytes, dict[Hashable, Callable[..., None]]] = {b"": {}}
        self._repeats: list[_Repeats] = []
        self._count = 0

    def add(self, chunks: Iterable[bytes], log: str = "") -> None:
        """Walk through a log, as UTF-8 in pieces cut anywhere. log: see `reader.records`."""
        self._log = log
        cutters = {mark: tracer.cut for mark, (_, tracer) in tracers().items()}
        known = self._places[b""]
        repeats = 0
        for number, line in enumerate(lines(chunks), 1):
            cutter = cutters.get(line[:MARK_LENGTH])
            cut = None if cutter is None else cutter(line)
            take = None if cut is None else known.get(cut[0])
            if take is None or cut is None or line[-1] != _NEWLINE:
                self._add(line, number)
            else:
                repeats += 1
                take(line, number, cut[1], cut[2])
        self.lines += repeats
        self.finish()

    def finish(self) -> None:
        """Hand out the sums, and begin anew."""
        for repeats in self._repeats:
            count = len(repeats.durations) + repeats.untimed
            last = structs.replace(repeats.record, start_ns=repeats.start_ns)
            for add_many in self._summers if count else ():
                add_many(last, count, repeats.durations)
        self._repeats.clear()
        self._count = 0
        known = self._places[b""]
        known.clear()
        self._places = {b"": known}

    def _add(self, line: bytes, number: int) -> None:
        """Add a line that has something before it, or whose key is new."""
        found = _located(line)
        if found is None:
            if (bare := plain(line)) != line and _located(bare):
                self._pass_on(self._read(line, number))
            else:
                self.texts += 1
            return
        before, at, cut = found
        if cut is None or line[-1] != _NEWLINE:
            self._pass_on(self._read(line, number))
        elif take := self._places.get(before, {}).get(cut[0]):
            self.lines += 1
            take(line[at:], number, cut[1], cut[2])
        else:
            records = self._read(line, number)
            self._pass_on(records)
            record = records[0]
            if (
                len(records) == 1
                and isinstance(record, Call | Dispatch | Check | Message)
                and is_cut_right(record, cut)
                and (not at or prefix(line[:at]) is not None)
                and plain(line) == line
            ):
                if self._count >= _MOST_CALLS:
                    self.finish()
                self._count += 1
                self._places.setdefault(before, {})[cut[0]] = self._taker(record)

    def _taker(self, record: Call | Dispatch | Check | Message) -> Callable[..., None]:
        """Return what takes in lines that are equal to one that was added."""
        if not self._is_chosen(record):
            return lambda *_: None
        followers = [found for collector in self._collectors if (found := _follower(collector, record))]
        if len(followers) == 1 and not self._summers:
            return followers[0]
        repeats = _Repeats(record, followers)
        self._repeats.append(repeats)
        return repeats.take

    def _read(self, line: bytes, number: int) -> list[AnyRecord]:
        return [with_log(record, self._log) for record in line_records(line, number)]

    def _pass_on(self, records: list[AnyRecord]) -> None:
        """Give records to all collectors."""
        for record in records:
            if isinstance(record, Text):
                self.texts += 1
                continue
            if isinstance(record, Header):
                self.finish()  # a process begins, and all of its calls are first calls
            self.lines += 1
            self.unreadable += isinstance(record, Malformed)
            if self._is_chosen(record):
                for add in self._adders:
                    add(record)


def _follower(collector: Any, record: Record) -> Follower | None:
    """Return what takes the calls that equal a record, one by one, to a collector; None where sums do."""
    if hasattr(collector, "follow"):
        found: Follower | None = collector.follow(record)
        return found
    if hasattr(collector, "add_many"):
        return None
    return lambda *call: collector.add(repeated(record, *call))


def _located(line: bytes) -> tuple[bytes, int, Cut | None] | None:
    """Return what is before a line of a library, where its marker is, and the line cut.

    The end of a capture's stamp is left out, and counts as the call's. None for a line without a marker.
    """
    tracer = tracers().get(line[:MARK_LENGTH])
    if tracer is not None:
        return b"", 0, tracer[1].cut(line)
    found = marker_search()[0].search(line)
    if found is None:
        return None
    at = found.start()
    cut: Cut | None = tracers()[line[at : at + MARK_LENGTH]][1].cut(line[at:])
    before, has_end, end = line[:at].rpartition(b" end ")
    if not has_end or not is_stamp(end[:-2]) or end[-2:] != b"] ":
        return line[:at], at, cut
    if cut is not None and cut[1] is not None and cut[2] is None:
        cut = cut[0], cut[1], int(end[:-2]) - round(cut[1])
    return before, at, cut


def repeated(
    record: Record, line: bytes, number: int, duration_ns: float | None, start_ns: int | None
) -> Record:
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
