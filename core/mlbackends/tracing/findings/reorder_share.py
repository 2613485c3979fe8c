"""Time went into reorders: copying tensors from one layout or type into another, around the real work."""

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache

from mlbackends.model.trace import Primitive, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, by_share, percent, times, took
from mlbackends.tracing.formats.onednn.descriptors import descriptors

_LEAST_SHARE = 0.02
_MOST_WAITING = 16
_MOST_LANES = 1024
_INPUTS = ("src", "wei", "bia", "data", "diff_dst", "in")


class _Stream:
    """What came last on a lane: reorders that nobody has claimed yet, and the primitive before them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Primitive, float]] = []
        self.last: Primitive | None = None


class Finder(finder.Finder):
    """Adds reorders up by who needed them: the next primitive that takes their layout, or the last."""

    WHY = "a reorder only moves data: it computes nothing and waits for memory"

    def begin(self) -> None:
        self._streams: dict[tuple[str, int | None, int | None], _Stream] = {}
        self._needed: defaultdict[str, Sum] = defaultdict(lambda: Sum(0))
        self._reorders = Sum(3)

    def add(self, record: Record) -> None:
        super().add(record)
        if (step := self.follow(record)) is not None:
            step(record.duration_ns or 0.0)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Primitive) and record.signature.primitive == "reorder":
            self._reorders.add(record, count, total_ns)

    def follow(self, record: Record) -> Callable[[float], None] | None:
        if not isinstance(record, Primitive):
            return None
        lane = (record.source, record.process, record.thread)
        stream = self._streams.get(lane)
        if stream is None:
            if len(self._streams) >= _MOST_LANES:
                return None
            stream = self._streams[lane] = _Stream()
        if record.signature.primitive == "reorder":

            def wait(duration: float) -> None:
                stream.waiting.append((record, duration))
                if len(stream.waiting) > _MOST_WAITING:
                    self._claim(stream, None, 1)

            return wait

        def compute(_: float) -> None:
            if stream.waiting:
                self._claim(stream, record)
            stream.last = record

        return compute

    def _claim(self, stream: _Stream, after: Primitive | None, most: int = _MOST_WAITING) -> None:
        """Add a lane's first reorders to those of the primitive that needed them, by their layouts."""
        for reorder, duration in stream.waiting[:most]:
            cause = ""
            for other, is_after in ((after, True), (stream.last, False)):
                if other is not None and not cause:
                    tensors = (each.signature.memory_descriptors for each in (reorder, other))
                    if role := _role(*tensors, is_after):
                        cause = f"{role} of {other.operation} ({other.implementation})"
            cause = cause or f"no neighbouring primitive; {reorder.dtype} {reorder.shape}"
            needed = self._needed[cause]
            needed.count += 1
            needed.total_ns += duration
        del stream.waiting[:most]

    def result(self) -> Found:
        share = self.share(self._reorders.total_ns)
        if share < _LEAST_SHARE:
            return
        for stream in self._streams.values():
            self._claim(stream, None)
        causes = sorted(self._needed.items(), key=lambda item: -item[1].total_ns)
        weights = sum(each.total_ns for cause, each in causes if cause.startswith("weights"))
        hint = (
            "reorder weights once, before the loop (prepacked weights, a frozen or exported model)"
            if weights > self._reorders.total_ns / 3
            else "keep one layout through the model (channels_last for convolutions), and let"
            " neighbouring operations run in oneDNN too"
        )
        sums = (
            f"{times(each.count, 'reorder')}, {took(each.total_ns)}: {cause}"
            for cause, each in causes[:5]
        )
        yield self.finding(
            by_share(share, high=0.3, medium=0.1),
            f"{times(self._reorders.count, 'reorder')} took {took(self._reorders.total_ns)},"
            f" {percent(share)} of the time",
            self._reorders,
            action=hint,
            evidence=(*sums, *self._reorders.lines),
        )


@lru_cache(maxsize=1024)
def _role(of_reorder: str, of_other: str, is_after: bool) -> str:
    """Return what a reorder's tensor is to the primitive after or before it, "" if its layouts differ."""
    side = "dst" if is_after else "src"
    moved = next(
        (descriptor for descriptor in descriptors(of_reorder) if descriptor.name.startswith(side)),
        None,
    )
    if moved is None or not moved.layout:
        return ""
    for each in descriptors(of_other):
        if (each.layout, each.dtype) != (moved.layout, moved.dtype):
            continue
        if is_after and each.name.startswith(_INPUTS):
            return "weights" if each.name.startswith("wei") else "input"
        if not is_after and not each.name.startswith(("src", "wei", "bia")):
            return "result"
    return ""
