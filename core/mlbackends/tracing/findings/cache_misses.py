"""Primitives were made again that had been made before: oneDNN's cache had thrown them out."""

from collections import defaultdict

from mlbackends.model.trace import Header, Primitive, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, by_share, percent, times, took


class Finder(finder.Finder):
    """Remembers, by process, what was made."""

    WANTS = frozenset(("uncounted", "notes"))
    WHY = (
        "making a primitive chooses and compiles code, often for longer than it runs; the cache keeps"
        " 1024 of them in a process"
    )
    ACTION = "raise ONEDNN_PRIMITIVE_CACHE_CAPACITY, or pad inputs to fewer different shapes"

    def begin(self) -> None:
        self._made: defaultdict[tuple[str, int | None], set[int]] = defaultdict(set)
        self._again = Sum(3)
        self._creations = 0

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Header) and record.tracer == "onednn":
            # A process begins; where they cannot be distinguished, nothing is known of the ones before.
            self._made.pop((record.source, record.process), None)
        if not isinstance(record, Primitive) or record.executed or record.nested:
            return
        self._creations += count
        if record.cache == "cache_miss":
            made = self._made[record.source, record.process]
            which = hash(record.key)
            if which in made:
                self._again.add(record, count, total_ns)
            made.add(which)

    def result(self) -> Found:
        again = self._again
        share = self.share(again.total_ns)
        seen = (
            f"{times(again.count, 'primitive')} of {self._creations:,} were made again after"
            f" warm-up, though the process had made the same before: {took(again.total_ns)},"
            f" {percent(share)} as long as all work"
        )
        if again.count:
            severity = by_share(share, high=0.2, medium=0.02)
            yield self.finding(severity, seen, again)
