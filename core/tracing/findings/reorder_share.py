"""Time went into reorders: copying tensors from one layout or type into another, around the real work."""

from mlbackends.model.trace import Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.observing import (
    Evidence,
    Machine,
    Whole,
    by_share,
    percent,
    times,
    took,
)
from mlbackends.tracing.onednn.descriptors import MemoryDescriptor, descriptors

_LEAST_SHARE = 0.02
_MOST_WAITING = 16
_MOST_LANES = 1024
_INPUTS = ("src", "wei", "bia", "data", "diff_dst", "in")
Lane = tuple[str, int | None, int | None]


class _Stream:
    """What came last on a lane: the reorders that nobody has claimed yet, and the primitive before them."""

    def __init__(self) -> None:
        self.waiting: list[Primitive] = []
        self.last: Primitive | None = None


class Finder:
    """Adds reorders up by who needed them: the next primitive that takes their layout, or the last."""

    WANTS = frozenset(("work",))

    def __init__(self, machine: Machine) -> None:
        del machine
        self._streams: dict[Lane, _Stream] = {}
        self._needed: dict[str, list[float]] = {}
        self._evidence = Evidence()
        self._count = 0
        self._total_ns = 0.0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if not isinstance(record, Primitive):
            return
        lane = (record.source, record.process, record.thread)
        stream = self._streams.get(lane)
        if stream is None:
            if len(self._streams) >= _MOST_LANES:
                return
            stream = self._streams[lane] = _Stream()
        if record.signature.primitive == "reorder":
            self._count += 1
            self._total_ns += record.duration_ns or 0.0
            self._evidence.add(record)
            stream.waiting.append(record)
            if len(stream.waiting) > _MOST_WAITING:
                self._claim(stream.waiting.pop(0), stream.last, None)
            return
        for reorder in stream.waiting:
            self._claim(reorder, stream.last, record)
        stream.waiting.clear()
        stream.last = record

    def _claim(self, reorder: Primitive, before: Primitive | None, after: Primitive | None) -> None:
        who = _who(reorder, before, after)
        sums = self._needed.setdefault(who, [0, 0.0])
        sums[0] += 1
        sums[1] += reorder.duration_ns or 0.0

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if reorders take a share that matters."""
        share = whole.share(self._total_ns)
        if share < _LEAST_SHARE:
            return []
        needed = {who: list(sums) for who, sums in self._needed.items()}
        for stream in self._streams.values():
            for reorder in stream.waiting:
                sums = needed.setdefault(_who(reorder, stream.last, None), [0, 0.0])
                sums[0] += 1
                sums[1] += reorder.duration_ns or 0.0
        causes = sorted(needed.items(), key=lambda item: -item[1][1])[:5]
        weights = sum(total for who, (_, total) in needed.items() if who.startswith("weights"))
        hint = (
            "reorder weights once, before the loop (prepacked weights, a frozen or exported model)"
            if weights > self._total_ns / 3
            else "keep one layout through the model (channels_last for convolutions), and let"
            " neighbouring operations run in oneDNN too"
        )
        return [
            Finding(
                code="reorder-share",
                severity=by_share(share, high=0.3, medium=0.1),
                seen=(
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


def _who(reorder: Primitive, before: Primitive | None, after: Primitive | None) -> str:
    """Say who needed a reorder, as far as layouts tell it."""
    tensors = descriptors(reorder.signature.memory_descriptors)
    source = next((each for each in tensors if each.name.startswith("src")), None)
    target = next((each for each in tensors if each.name.startswith("dst")), None)
    if after is not None and target is not None:
        for each in descriptors(after.signature.memory_descriptors):
            if each.name.startswith(_INPUTS) and _same(each, target):
                role = "weights" if each.name.startswith("wei") else "input"
                return f"{role} of {after.operation} ({after.implementation})"
    if before is not None and source is not None:
        for each in descriptors(before.signature.memory_descriptors):
            if not each.name.startswith(("src", "wei", "bia")) and _same(each, source):
                return f"result of {before.operation} ({before.implementation})"
    return f"no primitive beside it; {reorder.dtype} {reorder.shape}"


def _same(left: MemoryDescriptor, right: MemoryDescriptor) -> bool:
    return left.layout == right.layout and left.dtype == right.dtype and bool(left.layout)
