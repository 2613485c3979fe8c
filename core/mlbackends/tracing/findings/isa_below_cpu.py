"""oneDNN ran code for a lesser instruction set than the processor, or its own header, has."""

from collections import defaultdict

from mlbackends.model.trace import Info, Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Sum, Whole, by_share, percent, times, took

_LEVELS = ("", "SSE4.1", "AVX", "AVX2", "AVX-512")
"""Instruction sets that every element type can use; AMX, above, is for small types alone."""
_NAMES = {"avx512": 4, "avx10": 4, "amx": 4, "avx2": 3, "avx": 2, "sse41": 1, "sse4": 1}
_WORDS = {"AMX": 4, "AVX-512": 4, "AVX10": 4, "AVX2": 3, "AVX": 2, "SSE4.1": 1}
_CAPABILITIES = {"AVX512": 4, "AVX2": 3}
_LEAST_SHARE = 0.01


class Finder(finder.Finder):
    """Compares the header's instruction set, the kernels' names and, if known, the processor's."""

    WANTS = frozenset(("work", "notes"))

    def begin(self) -> None:
        self._lowest = 0
        self._header: Info | None = None
        self._sums: dict[int, Sum] = defaultdict(Sum)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Info) and record.topic == "cpu" and "isa" in record.values:
            text = record.values["isa"]
            level = next((level for word, level in _WORDS.items() if word in text), 0)
            if level and (not self._lowest or level < self._lowest):
                self._lowest, self._header = level, record
        elif isinstance(record, Primitive) and record.isa:
            starts = (level for word, level in _NAMES.items() if record.isa.startswith(word))
            if level := next(starts, 0):
                self._sums[level].add(record, count, total_ns)

    def result(self, whole: Whole) -> list[Finding]:
        """Return what is below."""
        found = []
        processor = _CAPABILITIES.get(self.machine.capability, 0)
        if self._header is not None and self._lowest < processor:
            seen = (
                f"oneDNN says that it uses {_LEVELS[self._lowest]}; this processor"
                f" has {_LEVELS[processor]}"
            )
            found.append(
                self.finding(
                    "high",
                    seen,
                    why="narrower vectors do less work a cycle, often half",
                    action=(
                        "unset ONEDNN_MAX_CPU_ISA, DNNL_MAX_CPU_ISA and ONEDNN_CPU_ISA_HINTS; in a"
                        " virtual machine, pass the host's processor features on"
                    ),
                    evidence=(self._header.raw,),
                    total_ns=whole.total_ns,
                    share=1.0,
                )
            )
        best = self._lowest or max(self._sums, default=0)
        below = {level: calls for level, calls in self._sums.items() if level < best}
        total = sum(calls.total_ns for calls in below.values())
        share = whole.share(total)
        if share >= _LEAST_SHARE:
            sums = ", ".join(
                f"{_LEVELS[level]} {times(calls.count, 'call')} {took(calls.total_ns)}"
                for level, calls in sorted(below.items(), reverse=True)
            )
            lines = [line for level in sorted(below) for line in below[level].evidence.lines]
            found.append(
                self.finding(
                    by_share(share, medium=0.1),
                    f"{percent(share)} of the time ran kernels below {_LEVELS[best]},"
                    f" which others here use: {sums}",
                    why="these kernels were chosen since none for the wider vectors took the problem",
                    action="trace with --level dispatch: the dispatch view tells what refused them",
                    evidence=tuple(lines[:4]),
                    count=sum(calls.count for calls in below.values()),
                    total_ns=total,
                    share=share,
                )
            )
        return found
