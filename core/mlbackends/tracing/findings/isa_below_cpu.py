"""oneDNN ran code for a lesser instruction set than the processor, or its own header, has."""

from collections.abc import Sequence

from mlbackends.model.trace import Info, Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.finder import Evidence, Machine, Whole, by_share, percent, times, took

_LADDER = ("", "SSE4.1", "AVX", "AVX2", "AVX-512")
"""Rungs that every element type can use; AMX, above, is for small types alone."""
_NAMES = (
    ("avx512", 4),
    ("avx10", 4),
    ("amx", 4),
    ("avx2", 3),
    ("avx", 2),
    ("sse41", 1),
    ("sse4", 1),
)
_WORDS = (("AMX", 4), ("AVX-512", 4), ("AVX10", 4), ("AVX2", 3), ("AVX", 2), ("SSE4.1", 1))
_CAPABILITIES = {"AVX512": 4, "AVX2": 3}
_LEAST_SHARE = 0.01


class Finder:
    """Compares the header's instruction set, the kernels' names and, if told, the processor's."""

    WANTS = frozenset(("work", "notes"))

    def __init__(self, machine: Machine) -> None:
        self._processor = _CAPABILITIES.get(machine.capability, 0)
        self._header = 0
        self._lowest_header = 0
        self._header_line: Info | None = None
        self._sums: dict[int, list[float]] = {}
        self._evidence: dict[int, Evidence] = {}

    def add(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, Info) and record.topic == "cpu" and "isa" in record.values:
            rung = next((rung for word, rung in _WORDS if word in record.values["isa"]), 0)
            self._header = max(self._header, rung)
            if rung and (not self._lowest_header or rung < self._lowest_header):
                self._lowest_header, self._header_line = rung, record
        else:
            self._take(record, 1, record.duration_ns or 0.0)

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added."""
        self._take(record, count, sum(durations))

    def _take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Primitive) and record.isa:
            rung = next((rung for word, rung in _NAMES if record.isa.startswith(word)), 0)
            if rung:
                sums = self._sums.setdefault(rung, [0, 0.0])
                sums[0] += count
                sums[1] += total_ns
                self._evidence.setdefault(rung, Evidence(2)).add(record)

    def result(self, whole: Whole) -> list[Finding]:
        """Return what is below."""
        found = []
        if self._header_line is not None and self._lowest_header < self._processor:
            found.append(
                Finding(
                    code="isa-below-cpu",
                    severity="high",
                    seen=(
                        f"oneDNN says that it uses {_LADDER[self._lowest_header]}; this processor"
                        f" has {_LADDER[self._processor]}"
                    ),
                    why="narrower vectors do less work a cycle, often half",
                    action=(
                        "unset ONEDNN_MAX_CPU_ISA, DNNL_MAX_CPU_ISA and ONEDNN_CPU_ISA_HINTS; in a"
                        " virtual machine, pass the host's processor features on"
                    ),
                    evidence=(self._header_line.raw,),
                    total_ns=whole.total_ns,
                    share=1.0,
                )
            )
        best = self._lowest_header or max(self._sums, default=0)
        below = {rung: sums for rung, sums in self._sums.items() if rung < best}
        total = sum(total for _, total in below.values())
        share = whole.share(total)
        if share >= _LEAST_SHARE:
            said = ", ".join(
                f"{_LADDER[rung]} {times(int(count), 'call')} {took(took_ns)}"
                for rung, (count, took_ns) in sorted(below.items(), reverse=True)
            )
            found.append(
                Finding(
                    code="isa-below-cpu",
                    severity=by_share(share, medium=0.1),
                    seen=(
                        f"{percent(share)} of the time ran kernels below {_LADDER[best]},"
                        f" which others here use: {said}"
                    ),
                    why="these kernels were chosen since none for the wider vectors took the problem",
                    action="trace with --level dispatch: the dispatch view tells what refused them",
                    evidence=tuple(
                        line for rung in sorted(below) for line in self._evidence[rung].lines
                    )[:4],
                    count=int(sum(count for count, _ in below.values())),
                    total_ns=total,
                    share=share,
                )
            )
        return found
