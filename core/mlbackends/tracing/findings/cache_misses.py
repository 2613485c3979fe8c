"""Primitives were made again that had been made before: oneDNN's cache had thrown them out."""

from collections.abc import Sequence

from mlbackends.model.trace import Header, Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.finder import Evidence, Machine, Whole, by_share, percent, times, took


class Finder:
    """Remembers, by process, what was made."""

    WANTS = frozenset(("uncounted", "notes"))

    def __init__(self, machine: Machine) -> None:
        del machine
        self._made: dict[tuple[str, int | None], set[int]] = {}
        self._evidence = Evidence()
        self._count = self._creations = 0
        self._again_ns = 0.0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, Header) and record.tracer == "onednn":
            # A process begins; where they cannot be told apart, nothing is known of the ones before.
            self._made.pop((record.source, record.process), None)
        if not isinstance(record, Primitive) or record.executed or record.nested:
            return
        self._creations += 1
        if record.cache != "cache_miss":
            return
        made = self._made.setdefault((record.source, record.process), set())
        which = hash(record.key)
        if which in made:
            self._count += 1
            self._again_ns += record.duration_ns or 0.0
            self._evidence.add(record)
        made.add(which)

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added."""
        if not isinstance(record, Primitive) or record.executed or record.nested:
            return
        self._creations += count
        if record.cache == "cache_miss":
            self._count += count
            self._again_ns += sum(durations)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if anything was made twice."""
        if not self._count:
            return []
        share = whole.share(self._again_ns)
        return [
            Finding(
                code="cache-misses",
                severity=by_share(share, high=0.2, medium=0.02),
                seen=(
                    f"{times(self._count, 'primitive')} of {self._creations:,} were made again after"
                    f" warm-up, though the process had made the same before: {took(self._again_ns)},"
                    f" {percent(share)} as long as all work"
                ),
                why=(
                    "making a primitive chooses and compiles code, often for longer than it runs; the"
                    " cache keeps 1024 of them in a process"
                ),
                action=(
                    "raise ONEDNN_PRIMITIVE_CACHE_CAPACITY, or pad inputs to fewer different shapes"
                ),
                evidence=self._evidence.lines,
                count=self._count,
                total_ns=self._again_ns,
                share=share,
            )
        ]
