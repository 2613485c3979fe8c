"""Time went into reorders: copying tensors from one layout or type into another, around the real work."""

from collections.abc import Callable
from functools import partial

from mlbackends.model.trace import Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Evidence, Whole, by_share, percent, times, took
from mlbackends.tracing.formats.onednn.descriptors import MemoryDescriptor, descriptors

_LEAST_SHARE = 0.02
_MOST_WAITING = 16
_MOST_LANES = 1024
_MOST_PAIRS = 8192
_INPUTS = ("src", "wei", "bia", "data", "diff_dst", "in")
Question = Callable[[Primitive, Primitive], str]
Lane = tuple[str, int | None, int | None]


class _Stream:
    """What came last on a lane: the reorders that nobody has claimed yet, and the primitive before them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Primitive, float]] = []
        self.last: Primitive | None = None


class Finder(finder.Finder):
    """Adds reorders up by who needed them: the next primitive that takes their layout, or the last."""

    def begin(self) -> None:
        self._streams: dict[Lane, _Stream] = {}
        self._needed: dict[str, list[float]] = {}
        self._pairs: dict[tuple[Question, str, str], str] = {}
        self._evidence = Evidence()
        self._count = 0
        self._total_ns = 0.0

    def add(self, record: Record) -> None:
        if not isinstance(record, Primitive):
            return
        lane = (record.source, record.process, record.thread)
        stream = self._streams.get(lane)
        if stream is None:
            if len(self._streams) >= _MOST_LANES:
                return
            stream = self._streams[lane] = _Stream()
        duration = record.duration_ns or 0.0
        if record.signature.primitive == "reorder":
            self._count += 1
            self._total_ns += duration
            self._evidence.add(record)
            self._wait(stream, record, duration)
        else:
            self._compute(stream, record, duration)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if self.follow(record) is not None and record.operation == "reorder":
            self._count += count
            self._total_ns += total_ns

    def follow(self, record: Record) -> Callable[[float], None] | None:
        if not isinstance(record, Primitive):
            return None
        stream = self._streams.get((record.source, record.process, record.thread))
        if stream is None:
            return None
        is_reorder = record.signature.primitive == "reorder"
        return partial(self._wait if is_reorder else self._compute, stream, record)

    def _wait(self, stream: _Stream, reorder: Primitive, duration: float) -> None:
        stream.waiting.append((reorder, duration))
        if len(stream.waiting) > _MOST_WAITING:
            self._claim(*stream.waiting.pop(0), stream.last, None)

    def _compute(self, stream: _Stream, record: Primitive, duration: float) -> None:
        del duration
        if stream.waiting:
            for reorder, took_ns in stream.waiting:
                self._claim(reorder, took_ns, stream.last, record)
            stream.waiting.clear()
        stream.last = record

    def _claim(
        self,
        reorder: Primitive,
        duration: float,
        before: Primitive | None,
        after: Primitive | None,
    ) -> None:
        """Add a reorder to those of the primitive that needed it, as far as layouts tell."""
        who = "" if after is None else self._answer(_taker, reorder, after)
        if not who and before is not None:
            who = self._answer(_giver, reorder, before)
        who = who or f"no primitive beside it; {reorder.dtype} {reorder.shape}"
        sums = self._needed.setdefault(who, [0, 0.0])
        sums[0] += 1
        sums[1] += duration

    def _answer(self, ask: Question, reorder: Primitive, other: Primitive) -> str:
        """Return what the layouts of a reorder and its neighbour tell, computed once for each two."""
        pair = ask, reorder.signature.key, other.signature.key
        answer = self._pairs.get(pair)
        if answer is None:
            if len(self._pairs) >= _MOST_PAIRS:
                self._pairs.clear()
            answer = self._pairs[pair] = ask(reorder, other)
        return answer

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if reorders take a share that matters."""
        share = whole.share(self._total_ns)
        if share < _LEAST_SHARE:
            return []
        for stream in self._streams.values():
            for reorder, duration in stream.waiting:
                self._claim(reorder, duration, stream.last, None)
            stream.waiting.clear()
        needed = self._needed
        causes = sorted(needed.items(), key=lambda item: -item[1][1])[:5]
        weights = sum(total for who, (_, total) in needed.items() if who.startswith("weights"))
        hint = (
            "reorder weights once, before the loop (prepacked weights, a frozen or exported model)"
            if weights > self._total_ns / 3
            else "keep one layout through the model (channels_last for convolutions), and let"
            " neighbouring operations run in oneDNN too"
        )
        return [
            self.finding(
                by_share(share, high=0.3, medium=0.1),
                (
                    f"{times(self._count, 'reorder')} took {took(self._total_ns)},"
                    f" {percent(share)} of the time"
                ),
                why="a reorder only moves data: it computes nothing and waits for memory",
                action=hint,
                evidence=(
                    *(
                        f"{times(int(count), 'reorder')}, {took(total)}: {who}"
                        for who, (count, total) in causes
                    ),
                    *self._evidence.lines,
                ),
                count=self._count,
                total_ns=self._total_ns,
                share=share,
            )
        ]


def _taker(reorder: Primitive, after: Primitive) -> str:
    """Say what the next primitive needed a reorder for, "" if its layouts are not those."""
    target = _tensor(reorder, "dst")
    for each in descriptors(after.signature.memory_descriptors):
        if target is not None and each.name.startswith(_INPUTS) and _same(each, target):
            role = "weights" if each.name.startswith("wei") else "input"
            return f"{role} of {after.operation} ({after.implementation})"
    return ""


def _giver(reorder: Primitive, before: Primitive) -> str:
    """Say whether a reorder took what the last primitive left, "" if its layouts are not those."""
    source = _tensor(reorder, "src")
    for each in descriptors(before.signature.memory_descriptors):
        is_input = each.name.startswith(("src", "wei", "bia"))
        if source is not None and not is_input and _same(each, source):
            return f"result of {before.operation} ({before.implementation})"
    return ""


def _tensor(reorder: Primitive, name: str) -> MemoryDescriptor | None:
    tensors = descriptors(reorder.signature.memory_descriptors)
    return next((each for each in tensors if each.name.startswith(name)), None)


def _same(left: MemoryDescriptor, right: MemoryDescriptor) -> bool:
    return left.layout == right.layout and left.dtype == right.dtype and bool(left.layout)
