"""Primitives were made again that had been made before: oneDNN's cache had no room for them, or is off."""

from collections import Counter, defaultdict

from mlbackends.model.trace import Header, Primitive, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, by_share, percent, times, took

#: What the cache holds unless it is set otherwise (oneDNN developer guide, "Primitive Cache").
_CAPACITY = 1024


class Finder(finder.Finder):
    """Remembers, by process, what was made."""

    WANTS = frozenset(("uncounted", "notes"))
    WHY = (
        "creating a primitive selects and compiles code, which often takes longer than running it; the"
        f" cache holds {_CAPACITY} primitives per process"
    )
    ACTION = "raise ONEDNN_PRIMITIVE_CACHE_CAPACITY, or pad inputs to fewer different shapes"
    ACTION_IF_OFF = (
        "unset ONEDNN_PRIMITIVE_CACHE_CAPACITY (DNNL_PRIMITIVE_CACHE_CAPACITY); 0 turns the cache off, as"
        " dnnl_set_primitive_cache_capacity(0) does in a framework that has its own cache"
    )

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
        share = self.share(again.total_ns)
        seen = (
            f"{times(again.count, 'primitive')} of {self._creations:,} were created again after"
            f" warm-up although the process had created them before: {took(again.total_ns)},"
            f" {percent(share)} of the time of all counted calls"
        )
        if not again.count:
            return
        has_processes = self._headers or any(process is not None for _, process in self._created)
        severity = by_share(share, high=0.2, medium=0.02)
        # With a cache, a process makes a primitive again only where that was full. A log may hold lines of
        # as many processes as it has headers; without one, and without their numbers, of any number.
        is_off = not self._hits and self._most_often > max(2, self._headers)
        if is_off and has_processes and self._most_created < _CAPACITY:
            seen = (
                f"the primitive cache is off or tiny: none of {self._creations:,} creations"
                f" was a cache hit, and {again.count:,} were repeated: {took(again.total_ns)},"
                f" {percent(share)} of the time of all counted calls"
            )
            severity = max(severity, "medium", key=("low", "medium", "high").index)
            yield self.finding(severity, seen, again, action=self.ACTION_IF_OFF)
        else:
            yield self.finding(severity, seen, again)
