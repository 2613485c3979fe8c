"""Products of a matrix with one vector: they are as fast as the matrix is read, no faster."""

from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, by_share, percent, times, took

_LEAST_BYTES = 1 << 20
_LEAST_SHARE = 0.1
_MOST = 4


class Finder(finder.Finder):
    """Adds up products with fewer than two operations for each element, of a MiB or more."""

    WANTS = frozenset[str]()
    WHY = (
        "each element of the matrix is moved for one multiplication and one addition: memory, or the"
        " cache that holds it, is the limit, so that wider vectors and faster kernels change nothing"
    )
    ACTION = (
        "batch several vectors into one product (requests, tokens), or store the weights in a smaller"
        " type (bf16, int8, int4); threads help until memory is busy"
    )

    def result(self) -> Found:
        vectors, rows = Sum(2), []
        for calls in self.calls:
            if (
                calls.is_product
                and 0 < calls.operations_an_element < 2
                and (calls.record.bytes or 0) >= _LEAST_BYTES
            ):
                vectors.add(calls.record, calls.count, calls.total_ns)
                seen = f"{times(calls.count, 'call')} of {calls.name}"
                speed = f"{calls.gigabytes_per_second:.3g} GB/s at best"
                rows.append((calls.total_ns, calls.gigabytes_per_second, f"{seen}: {speed}"))
        share = self.share(vectors.total_ns)
        if share < _LEAST_SHARE:
            return
        rows.sort(key=lambda row: (-row[0], row[2]))
        best = max(speed for _, speed, _ in rows)
        roof = self.machine.roof
        of_roof = f"; reading memory gave {roof.gigabytes_per_second:.3g} just now" if roof else ""
        yield self.finding(
            by_share(share, medium=0.3),
            f"{times(vectors.count, 'product')} with a single vector took {took(vectors.total_ns)},"
            f" {percent(share)} of the time, at {best:.3g} GB/s at best{of_roof}",
            vectors,
            evidence=(*(row for _, _, row in rows[:_MOST]), *vectors.lines),
        )
