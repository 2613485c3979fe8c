"""Transforms of a length with a large prime factor, such as 1009, run slow algorithms.

Source: Intel, "FFT Length and Layout Advisor": kernels of radix 2, 3, 4, 5, 7, 8, 11, 13, 16 and some
larger; neighbouring lengths may differ tenfold. Measured with MKL 2024.2 on Zen 4, one thread, GFLOP/s:
1024 28, 1000 19, 1092 = 4*3*7*13 17, 1088 = 64*17 14, 1984 = 64*31 10, 1009 4.5, 1016 = 8*127 2.6.
"""

from itertools import count

from mlbackends.model.trace import MklCall
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, by_share, percent, times, took

_RADICES = (2, 3, 5, 7, 11, 13)
#: The largest other factor of a length: 17 and 19 cost little.
_MOST_LEFT = 19
_LEAST_LENGTH = 64
_LEAST_SHARE = 0.01


class Finder(finder.Finder):
    """Takes the lengths of transforms apart."""

    WANTS = frozenset[str]()
    WHY = (
        "MKL has kernels for lengths made of 2, 3, 5, 7, 11 and 13; the rest of a length goes through"
        " slower algorithms"
    )
    ACTION = (
        "where the problem allows another length (filters, convolutions, spectra), pad with zeros to"
        " the next one made of small factors"
    )

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
                nexts = {
                    length: next(each for each in count(length) if _rest(each, _RADICES[:4]) == 1)
                    for length in lengths
                }
                padded = (f"{length} -> {longer}" for length, longer in nexts.items())
                slow.add_calls(calls, ", ".join(padded))
        share = self.share(slow.total_ns)
        if share < _LEAST_SHARE:
            return
        compared = ""
        if speeds[True] and speeds[False]:
            compared = f"; they reach {speeds[True]:.3g} GFLOP/s at best, other lengths {speeds[False]:.3g}"
        yield self.finding(
            by_share(share, high=0.5, medium=0.1),
            f"{times(slow.count, 'transform')} of lengths with a large prime factor took"
            f" {took(slow.total_ns)}, {percent(share)} of the time{compared}",
            slow,
        )


def _rest(length: int, radices: tuple[int, ...] = _RADICES) -> int:
    """Return what is left of a length without its small factors; 1 for a fast one."""
    for radix in radices:
        while length % radix == 0:
            length //= radix
    return length
