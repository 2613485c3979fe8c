"""Products of a matrix with one vector: they are as fast as the matrix is read, no faster."""

from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, by_share, percent, times, took

_LEAST_BYTES = 1 << 20
_LEAST_SHARE = 0.1


class Finder(finder.Finder):
    """Adds up products with fewer than two operations for each element, of a MiB or more."""

    WANTS = frozenset[str]()
    WHY = (
        "each matrix element is loaded for one multiplication and one addition: memory or cache bandwidth"
        " is the limit, so wider vectors and faster kernels do not help"
    )
    ACTION = (
        "batch several vectors into one product (requests, tokens), or store the weights in a smaller"
        " type (bf16, int8, int4); threads help until memory is busy"
    )

    def result(self) -> Found:
        vectors, best = Sum(2), 0.0
        for calls in self.calls:
            if (
                calls.is_product
                and 0 < calls.operations_an_element < 2
                and (calls.record.bytes or 0) >= _LEAST_BYTES
            ):
                speed = calls.gigabytes_per_second
                vectors.add_calls(calls, f"{speed:.3g} GB/s at best")
                best = max(best, speed)
        share = self.share(vectors.total_ns)
        if share < _LEAST_SHARE:
            return
        roof = self.machine.roof
        of_roof = f"; memory reads reached {roof.gigabytes_per_second:.3g} just now" if roof else ""
        yield self.finding(
            by_share(share, medium=0.3),
            f"{times(vectors.count, 'product')} with one vector took {took(vectors.total_ns)},"
            f" {percent(share)} of the time, at {best:.3g} GB/s at best{of_roof}",
            vectors,
        )
