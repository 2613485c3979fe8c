"""What creations and reorders reveal: primitives that are created again, and copies into other layouts."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from functools import lru_cache

from mlbackends.base.errors import counted
from mlbackends.model.trace import Header, Primitive, Record
from mlbackends.tracing.finder import Finder, Found, Sum, by_share, percent, took
from mlbackends.tracing.formats.onednn.descriptors import descriptors

#: What the cache holds unless it is set otherwise (oneDNN developer guide, "Primitive Cache").
_CAPACITY = 1024
_LEAST_NEW = 5
_LEAST_EXECUTIONS = 50
_LEAST_SHARE = 0.02
_MOST_WAITING = 16
_MOST_LANES = 1024
_INPUTS = ("src", "wei", "bia", "data", "diff_dst", "in")


class CacheMisses(Finder):
    """Primitives were made again that had been made before: oneDNN's cache had no room for them, or is off.

    It remembers, by process, what was made.
    """

    WANTS = frozenset(("uncounted", "notes"))

    def begin(self) -> None:
        self._created: defaultdict[tuple[str, int | None], Counter[int]] = defaultdict(Counter)
        self._again = Sum(3)
        self._creations = self._hits = self._headers = self._most_created = self._most_often = 0

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Header) and record.tracer == "onednn":
            # A process begins; where they cannot be distinguished, nothing is known of the ones before.
            self._created.pop((record.source, record.process), None)
            self._headers += 1
        if not isinstance(record, Primitive) or record.executed or record.nested:
            return
        self._creations += count
        self._hits += count * record.cache.endswith("_hit")
        if record.cache == "cache_miss":
            created = self._created[record.source, record.process]
            key = hash(record.key)
            if key in created:
                self._again.add(record, count, total_ns)
            created[key] += count
            self._most_created = max(self._most_created, len(created))
            self._most_often = max(self._most_often, created[key])

    def result(self) -> Found:
        again = self._again
        if not again.count:
            return
        share = self.share(again.total_ns)
        cost = f"{self.time_of(again)} of all counted calls"
        seen = (
            f"{counted(again.count, 'primitive')} of {self._creations:,} were created again after"
            f" warm-up although the process had created them before: {cost}"
        )
        has_processes = self._headers or any(process is not None for _, process in self._created)
        severity = by_share(share, high=0.2, medium=0.02)
        # With a cache, a process makes a primitive again only where that was full. A log may hold lines of
        # as many processes as it has headers; without one, and without their numbers, of any number.
        is_off = not self._hits and self._most_often > max(2, self._headers)
        if is_off and has_processes and self._most_created < _CAPACITY:
            seen = (
                f"the primitive cache is off or tiny: none of {self._creations:,} creations"
                f" was a cache hit, and {again.count:,} were repeated: {cost}"
            )
            severity = max(severity, "medium", key=("low", "medium", "high").index)
            yield self.finding(severity, seen, again, action=self.TEXTS["action_if_off"])
        else:
            yield self.finding(severity, seen, again)


class NewShapes(Finder):
    """New shapes kept coming after warm-up, and oneDNN made a primitive for each."""

    WANTS = frozenset(("work", "uncounted"))

    def begin(self) -> None:
        self._executions = 0
        self._creations: list[tuple[int, float, str]] = []
        self._seen: set[int] = set()
        self._latest: deque[Primitive] = deque(maxlen=3)

    def add(self, record: Record) -> None:
        if not isinstance(record, Primitive) or record.nested:
            return
        if record.executed:
            self._executions += 1
            return
        key = hash((record.source, record.process, record.key))
        if record.cache == "cache_miss" and key not in self._seen:
            self._seen.add(key)
            self._creations.append((self._executions, record.duration_ns or 0.0, record.operation))
            self._latest.append(record)

    def follow(self, record: Record) -> Callable[[float], None] | None:
        if not isinstance(record, Primitive) or not record.executed or record.nested:
            return None

        def count(_: float) -> None:
            self._executions += 1

        return count

    def result(self) -> Found:
        late = [creation for creation in self._creations if creation[0] > self._executions // 2]
        if len(late) < _LEAST_NEW or self._executions < _LEAST_EXECUTIONS:
            return
        counts = Counter(operation for _, _, operation in late)
        total = sum(duration for _, duration, _ in late)
        share = self.share(total)
        latest = Sum(3)
        for record in self._latest:
            latest.add(record, 1, 0.0)
        named = ", ".join(f"{count} of {operation}" for operation, count in counts.most_common(4))
        seen = (
            f"{counted(len(late), 'new primitive')} were created in the second half of the calls"
            f" ({named}): {took(total)}, {percent(share)} of the time of all counted calls"
        )
        yield self.finding(
            by_share(share, high=0.2, medium=0.02),
            seen,
            evidence=latest.lines,
            count=len(late),
            total_ns=total,
            share=share,
        )


class _Stream:
    """What came last on a lane: reorders that no primitive has claimed yet, and the primitive before them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Primitive, float]] = []
        self.last: Primitive | None = None


class ReorderShare(Finder):
    """Time went into reorders: copying tensors from one layout or type into another, around the real work.

    Reorders are added up by what needed them: the next primitive that reads their layout, or the last.
    """

    WANTS = frozenset(("work",))

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
                    tensors = (call.signature.memory_descriptors for call in (reorder, other))
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
        weights = sum(needed.total_ns for cause, needed in causes if cause.startswith("weights"))
        hint = self.TEXTS["weights" if weights > self._reorders.total_ns / 3 else "layouts"]
        sums = (
            f"{counted(needed.count, 'reorder')}, {took(needed.total_ns)}: {cause}"
            for cause, needed in causes[:5]
        )
        yield self.finding(
            by_share(share, high=0.3, medium=0.1),
            f"{counted(self._reorders.count, 'reorder')} took {self.time_of(self._reorders)}",
            self._reorders,
            action=hint,
            evidence=(*sums, *self._reorders.lines),
        )


@lru_cache(maxsize=1024)
def _role(of_reorder: str, of_other: str, is_after: bool) -> str:
    """Return what a reorder's tensor is to the primitive after or before it, "" if its layouts differ."""
    side = "dst" if is_after else "src"
    moved = next((tensor for tensor in descriptors(of_reorder) if tensor.name.startswith(side)), None)
    if moved is None or not moved.layout:
        return ""
    for tensor in descriptors(of_other):
        if (tensor.layout, tensor.dtype) != (moved.layout, moved.dtype):
            continue
        if is_after and tensor.name.startswith(_INPUTS):
            return "weights" if tensor.name.startswith("wei") else "input"
        if not is_after and not tensor.name.startswith(("src", "wei", "bia")):
            return "result"
    return ""
