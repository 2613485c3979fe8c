"""MKL computed by a fixed branch of its code (MKL_CBWR), so that results are equal elsewhere too.

Source: oneMKL Developer Guide, "Specifying Code Branches". Measured with MKL 2024.2 on Zen 4, one
thread, sgemm of 512: COMPATIBLE 0.4 of the speed, AUTO and AUTO,STRICT 0.95 to 1; transforms are as
fast in each.
"""

from collections import defaultdict

from mlbackends.model.trace import Header, MklCall, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, Sum, by_share, percent, times, took

_OLD = ("COMPATIBLE", "SSE2", "SSE3", "SSSE3", "SSE4_1", "SSE4_2", "AVX")


class Finder(finder.Finder):
    """Adds up the calls by their line's CNR value."""

    WANTS = frozenset(("notes",))
    WHY = (
        "conditional numerical reproducibility fixes the code path: one below the processor's own uses"
        " narrower vectors and is slower, most of all in matrix products; AUTO costs little"
    )
    ACTION = (
        "unless results must be equal across processors, unset MKL_CBWR or set it to AUTO; the program"
        " may also have called MKL_CBWR_Set"
    )

    def begin(self) -> None:
        self._has_avx512 = False

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Header) and record.tracer == "mkl":
            self._has_avx512 |= "AVX-512" in record.raw

    def result(self) -> Found:
        by_mode: defaultdict[str, Sum] = defaultdict(lambda: Sum(2))
        for calls in self.calls:
            record = calls.record
            if isinstance(record, MklCall):
                mode = record.signature.state.get("CNR", "OFF")
                if mode != "OFF":
                    by_mode[mode].add(record, calls.count, calls.total_ns)
        for mode, found in by_mode.items():
            branch, _, strict = mode.partition(",")
            share = self.share(found.total_ns)
            severity = "note"
            if branch in _OLD:
                severity = by_share(share, high=0.5, medium=0.05)
            elif strict or (branch.startswith("AVX2") and self._has_avx512):
                severity = by_share(share, medium=0.5)
            yield self.finding(
                severity,
                f"{times(found.count, 'call')} of MKL ran the branch {mode}: {took(found.total_ns)},"
                f" {percent(share)} of the time",
                found,
            )
