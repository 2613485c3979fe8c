"""What the speed of calls reveals, compared with other calls, with memory and with the machine."""

from collections import defaultdict
from itertools import count
from typing import NamedTuple

from mlbackends.base.errors import counted
from mlbackends.model.trace import MklCall
from mlbackends.tracing.finder import Calls, Finder, Found, Sum, by_share

_LEAST_NS = 100_000
#: A first call that takes so long computes for most of it.
_BEYOND_SETUP_NS = 1e8
#: For each element: from the first on memory cannot be what limits, below the second it is all that does.
_LEAST_OPERATIONS, _MOST_OPERATIONS = 200, 2
_LEAST_BYTES = 1 << 20
_TIMES_SLOWER = 5
_LEAST_SLOW_SHARE, _LEAST_VECTORS_SHARE, _LEAST_TRANSFORMS_SHARE = 0.05, 0.1, 0.01
#: The least that a processor does of a type, of what it does in f32.
_OF_F32 = {"f64": 0.5, "f32": 1.0, "bf16": 1.0, "f16": 1.0}
_RADICES = (2, 3, 5, 7, 11, 13)
_FAST = _RADICES[:4]
#: The largest other factor of a length: 17 and 19 cost little.
_MOST_LEFT = 19
_LEAST_LENGTH = 64


class _Speed(NamedTuple):
    """What calls reached. like: what they share with those that they are compared with. size: of traffic."""

    like: tuple[str, ...]
    speed: float
    unit: str
    size: float
    calls: Calls


class BelowPeak(Finder):
    """Long calls ran far slower than others of the trace that do the same, or than the machine does.

    Products are compared with products of the same types and threads, other work with its like.
    The shortest of equal calls counts, so that a busy machine is not reported. What only moves data is
    compared with calls that move as much or more, which no cache favours. Calls that a reference
    implementation ran have a separate finding.
    """

    def result(self) -> Found:
        alike: defaultdict[tuple[str, ...], list[_Speed]] = defaultdict(list)
        for measured in map(_speed, self.calls):
            if measured is not None:
                alike[measured.like].append(measured)
        slow = Sum(3)
        for group in alike.values():
            best_of: dict[float, float] = {}  # among calls of that size or more
            best = 0.0
            for measured in sorted(group, key=lambda measured: -measured.size):
                best = best_of[measured.size] = max(best, measured.speed)
            for _, speed, unit, size, calls in group:
                best, reference = best_of[size], "best of the same kind"
                roof = self.machine.roof
                if roof and roof.threads and calls.is_product and unit == "GFLOP/s":
                    threads = min(1.0, (calls.pool or roof.threads) / roof.threads)
                    peak = roof.gflops * threads * _OF_F32.get(calls.record.dtype, 0.0)
                    if peak > best:
                        best, reference = peak, "this machine"
                if speed * _TIMES_SLOWER <= best:
                    slow.add_calls(calls, f"{speed:.3g} {unit}; {reference} {best:.3g}")
        share = self.share(slow.total_ns)
        if share >= _LEAST_SLOW_SHARE:
            yield self.finding(
                by_share(share, high=0.5, medium=0.2),
                f"{counted(slow.count, 'call')} {'runs' if slow.count == 1 else 'run'} at under 20% of the"
                f" best speed seen: {self.time_of(slow)}",
                slow,
            )


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


class MatrixVector(Finder):
    """Products of a matrix with one vector: they are as fast as the matrix is read, no faster.

    They have fewer than two operations for each element, and a MiB of elements or more.
    """

    def result(self) -> Found:
        vectors, best = Sum(2), 0.0
        for calls in self.calls:
            has_one_vector = calls.is_product and 0 < calls.operations_an_element < 2
            if has_one_vector and (calls.record.bytes or 0) >= _LEAST_BYTES:
                speed = calls.gigabytes_per_second
                vectors.add_calls(calls, f"{speed:.3g} GB/s at best")
                best = max(best, speed)
        share = self.share(vectors.total_ns)
        if share >= _LEAST_VECTORS_SHARE:
            roof = self.machine.roof
            memory = f"; memory reads reached {roof.gigabytes_per_second:.3g} just now" if roof else ""
            yield self.finding(
                by_share(share, medium=0.3),
                f"{counted(vectors.count, 'product')} with one vector took {self.time_of(vectors)},"
                f" at {best:.3g} GB/s at best{memory}",
                vectors,
            )


class FftLength(Finder):
    """Transforms of a length with a large prime factor, such as 1009, run slow algorithms.

    Source: Intel, "FFT Length and Layout Advisor": kernels of radix 2, 3, 4, 5, 7, 8, 11, 13, 16 and some
    larger; neighbouring lengths may differ tenfold. Measured with MKL 2024.2 on Zen 4, one thread, GFLOP/s:
    1024 28, 1000 19, 1092 = 4*3*7*13 17, 1088 = 64*17 14, 1984 = 64*31 10, 1009 4.5, 1016 = 8*127 2.6.
    """

    def result(self) -> Found:
        slow = Sum(3)
        speeds = {True: 0.0, False: 0.0}
        for calls in self.calls:
            if not isinstance(calls.record, MklCall) or calls.record.operation != "FFT":
                continue
            has_flops = calls.record.flops is not None
            axes = calls.record.shape.partition("*")[0].split("x") if has_flops else ()
            lengths = [length for length in map(int, axes) if _rest(length) > _MOST_LEFT]
            is_slow = bool(lengths) and max(lengths) >= _LEAST_LENGTH
            speeds[is_slow] = max(speeds[is_slow], calls.gflops)
            if is_slow:
                fast = {
                    length: next(longer for longer in count(length) if _rest(longer, _FAST) == 1)
                    for length in lengths
                }
                padded = (f"{length} -> {longer}" for length, longer in fast.items())
                slow.add_calls(calls, ", ".join(padded))
        share = self.share(slow.total_ns)
        if share < _LEAST_TRANSFORMS_SHARE:
            return
        compared = ""
        if speeds[True] and speeds[False]:
            compared = f"; they reach {speeds[True]:.3g} GFLOP/s at best, other lengths {speeds[False]:.3g}"
        yield self.finding(
            by_share(share, high=0.5, medium=0.1),
            f"{counted(slow.count, 'transform')} of lengths with a large prime factor took"
            f" {self.time_of(slow)}{compared}",
            slow,
        )


def _rest(length: int, radices: tuple[int, ...] = _RADICES) -> int:
    """Return what is left of a length without its small factors; 1 for a fast one."""
    for radix in radices:
        while length % radix == 0:
            length //= radix
    return length
