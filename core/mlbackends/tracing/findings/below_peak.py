"""Long calls with much work reached far less than others of the trace, or than the machine does."""

from collections import defaultdict

from mlbackends.tracing import finder
from mlbackends.tracing.finder import Calls, Found, Sum, by_share, percent, times, took

_LEAST_NS = 100_000
_BEYOND_SETUP_NS = 1e8
"""A first call that takes so long computes for most of it."""
_LEAST_OPERATIONS = 200
"""For each element, so that memory is not what limits."""
_TIMES_SLOWER = 5
_LEAST_SHARE = 0.05
_OF_F32 = {"f64": 0.5, "f32": 1.0, "bf16": 1.0, "f16": 1.0}
"""The least that a processor does of a type, of what it does in f32."""


class Finder(finder.Finder):
    """Compares products with products of the same types and threads, other work with its like.

    The shortest of equal calls counts, so that a busy machine is no finding. Calls that a reference
    implementation ran have a finding of their own.
    """

    WANTS = frozenset[str]()
    WHY = "what limits these calls is neither arithmetic nor memory"
    ACTION = (
        "look at their shapes (one small size, odd leading dimensions), layouts, threads and first"
        " calls; of oneDNN the dispatch view says why faster kernels refused (--level dispatch)"
    )

    def result(self) -> Found:
        alike: defaultdict[tuple[str, ...], list[Calls]] = defaultdict(list)
        for calls in self.calls:
            record = calls.record
            if (
                calls.gflops
                and (calls.later.count or calls.least_ns >= _BEYOND_SETUP_NS)
                and calls.least_ns >= _LEAST_NS
                and calls.operations_an_element >= _LEAST_OPERATIONS
                and not record.slow_path
                and not calls.is_on_gpu
            ):
                what = "products" if calls.is_product else record.operation
                alike[record.tracer, what, record.dtype, str(calls.pool)].append(calls)
        slow = Sum(3)
        for (_, what, dtype, _), group in alike.items():
            best = max(calls.gflops for calls in group)
            who = "the best of the same kind here"
            if (roof := self._roof(group[0].pool, dtype)) > best and what == "products":
                best, who = roof, "this machine"
            for calls in group:
                if calls.gflops * _TIMES_SLOWER <= best:
                    slow.add_calls(calls, f"{calls.gflops:.3g} GFLOP/s; {who} {best:.3g}")
        share = self.share(slow.total_ns)
        if share >= _LEAST_SHARE:
            yield self.finding(
                by_share(share, high=0.5, medium=0.2),
                f"{times(slow.count, 'call')} with much work reach even at best less than a fifth of what"
                f" others here or the machine do: {took(slow.total_ns)}, {percent(share)} of the time",
                slow,
            )

    def _roof(self, pool: int, dtype: str) -> float:
        """Return what the machine does with so many threads; 0 where it was not measured."""
        roof = self.machine.roof
        if roof is None or not roof.threads:
            return 0.0
        threads = pool or roof.threads
        return roof.gflops * min(1.0, threads / roof.threads) * _OF_F32.get(dtype, 0.0)
