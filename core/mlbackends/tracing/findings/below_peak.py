"""Long calls ran far slower than others of the trace that do the same, or than the machine does."""

from collections import defaultdict
from typing import NamedTuple

from mlbackends.model.trace import MklCall
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Calls, Found, Sum, by_share, percent, times, took

_LEAST_NS = 100_000
#: A first call that takes so long computes for most of it.
_BEYOND_SETUP_NS = 1e8
#: For each element: from the first on memory cannot be what limits, below the second it is all that does.
_LEAST_OPERATIONS, _MOST_OPERATIONS = 200, 2
_LEAST_BYTES = 1 << 20
_TIMES_SLOWER = 5
_LEAST_SHARE = 0.05
#: The least that a processor does of a type, of what it does in f32.
_OF_F32 = {"f64": 0.5, "f32": 1.0, "bf16": 1.0, "f16": 1.0}


class _Speed(NamedTuple):
    """What calls reached. like: what they share with those that they are compared with. size: of traffic."""

    like: tuple[str, ...]
    speed: float
    unit: str
    size: float
    calls: Calls


class Finder(finder.Finder):
    """Compares products with products of the same types and threads, other work with its like.

    The shortest of equal calls counts, so that a busy machine is not reported. What only moves data is
    compared with calls that move as much or more, which no cache favours. Calls that a reference
    implementation ran have a separate finding.
    """

    WANTS = frozenset[str]()
    WHY = (
        "these calls are slowed by their shapes, layouts or threads, or by other programs or a CPU quota at"
        " that time"
    )
    ACTION = (
        "trace again on an idle machine; if they are still slow, look at their shapes (one small size,"
        " odd leading dimensions), layouts, threads and first calls; for oneDNN, the dispatch view shows"
        " why faster kernels refused (--level dispatch)"
    )

    def result(self) -> Found:
        alike: defaultdict[tuple[str, ...], list[_Speed]] = defaultdict(list)
        for found in map(_speed, self.calls):
            if found is not None:
                alike[found.like].append(found)
        slow = Sum(3)
        for group in alike.values():
            best_of: dict[float, float] = {}  # among calls of that size or more
            best = 0.0
            for one in sorted(group, key=lambda each: -each.size):
                best = best_of[one.size] = max(best, one.speed)
            for one in group:
                best = best_of[one.size]
                reference = "best of the same kind"
                if (roof := self._roof(one.calls)) > best and one.unit == "GFLOP/s":
                    best, reference = roof, "this machine"
                if one.speed * _TIMES_SLOWER <= best:
                    slow.add_calls(one.calls, f"{one.speed:.3g} {one.unit}; {reference} {best:.3g}")
        share = self.share(slow.total_ns)
        if share >= _LEAST_SHARE:
            yield self.finding(
                by_share(share, high=0.5, medium=0.2),
                f"{times(slow.count, 'call')} {'runs' if slow.count == 1 else 'run'} at under 20% of the best"
                f" speed seen: {took(slow.total_ns)}, {percent(share)} of the time",
                slow,
            )

    def _roof(self, calls: Calls) -> float:
        """Return the machine's speed with the calls' threads; 0 if it was not measured."""
        roof = self.machine.roof
        if roof is None or not roof.threads or not calls.is_product:
            return 0.0
        threads = calls.pool or roof.threads
        return roof.gflops * min(1.0, threads / roof.threads) * _OF_F32.get(calls.record.dtype, 0.0)


def _speed(calls: Calls) -> _Speed | None:
    """Return what calls reached; None where they are short, or where it is not known what limits them."""
    record, signature = calls.record, calls.record.signature
    is_warm = calls.later.count or calls.least_ns >= _BEYOND_SETUP_NS
    if not is_warm or calls.least_ns < _LEAST_NS or record.slow_path or calls.is_on_gpu:
        return None
    operations, traffic = calls.operations_an_element, record.bytes or 0.0
    own = (record.tracer, record.dtype, str(calls.pool))
    if operations >= _LEAST_OPERATIONS:
        calls_named = "products" if calls.is_product else record.operation
        return _Speed((*own, calls_named), calls.gflops, "GFLOP/s", 0.0, calls)
    # Of eigenvalues and the like, MKL's work is not known either.
    only_moves = operations > 0 or not isinstance(record, MklCall) or "COPY" in record.operation
    if operations < _MOST_OPERATIONS and only_moves and traffic >= _LEAST_BYTES:
        words = (str(getattr(signature, name, "")) for name in ("auxiliary", "propagation"))
        like = (*own, record.operation, *words)
        return _Speed(like, calls.gigabytes_per_second, "GB/s", traffic, calls)
    return None
