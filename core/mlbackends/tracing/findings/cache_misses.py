"""Primitives were made again that had been made before: oneDNN's cache had thrown them out."""

from mlbackends.model.trace import Header, Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Sum, Whole, by_share, percent, times, took


class Finder(finder.Finder):
    """Remembers, by process, what was made."""

    WANTS = frozenset(("uncounted", "notes"))

    def begin(self) -> None:
        self._made: dict[tuple[str, int | None], set[int]] = {}
        self._again = Sum(3)
        self._creations = 0

    def add(self, record: Record) -> None:
        if isinstance(record, Header) and record.tracer == "onednn":
            # A process begins; where they cannot be distinguished, nothing is known of the ones before.
            self._made.pop((record.source, record.process), None)
        if not isinstance(record, Primitive) or record.executed or record.nested:
            return
        made = self._made.setdefault((record.source, record.process), set())
        which = hash(record.key)
        self._creations += 1
        if record.cache == "cache_miss":
            if which in made:
                self._again.add(record, 1, record.duration_ns or 0.0)
            made.add(which)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Primitive) and not record.executed and not record.nested:
            self._creations += count
            if record.cache == "cache_miss":
                self._again.count += count
                self._again.total_ns += total_ns

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if anything was made twice."""
        again = self._again
        if not again.count:
            return []
        share = whole.share(again.total_ns)
        seen = (
            f"{times(again.count, 'primitive')} of {self._creations:,} were made again after"
            f" warm-up, though the process had made the same before: {took(again.total_ns)},"
            f" {percent(share)} as long as all work"
        )
        return [
            self.finding(
                by_share(share, high=0.2, medium=0.02),
                seen,
                why=(
                    "making a primitive chooses and compiles code, often for longer than it runs; the"
                    " cache keeps 1024 of them in a process"
                ),
                action=(
                    "raise ONEDNN_PRIMITIVE_CACHE_CAPACITY, or pad inputs to fewer different shapes"
                ),
                evidence=again.evidence.lines,
                count=again.count,
                total_ns=again.total_ns,
                share=share,
            )
        ]
