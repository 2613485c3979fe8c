"""MKL took its kernel file for no instruction set in particular."""

from collections.abc import Sequence

from mlbackends.model.trace import Header, MklCall, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.finder import Machine, Whole

_SETS = ("Advanced Vector Extensions", "AVX", "SSE", "Streaming SIMD")


class Finder:
    """Looks at MKL's header, and at the kernel file if it is told."""

    WANTS = frozenset(("work", "notes"))

    def __init__(self, machine: Machine) -> None:
        self._file = machine.mkl_kernel
        self._header: Header | None = None
        self._count = 0
        self._total_ns = 0.0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, MklCall):
            self._count += 1
            self._total_ns += record.duration_ns or 0.0
        elif (
            isinstance(record, Header)
            and record.tracer == "mkl"
            and not any(word in record.raw for word in _SETS)
        ):
            self._header = record

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added."""
        if isinstance(record, MklCall):
            self._count += count
            self._total_ns += sum(durations)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if the kernels are the generic ones."""
        generic = self._file.startswith(("libmkl_def", "mkl_def"))
        if not generic and (self._file or self._header is None):
            return []
        if generic:
            seen = f"the process has {self._file} mapped, MKL's generic kernel file"
        else:
            seen = (
                "MKL's header names no instruction set, as where it takes its generic kernel file"
            )
        return [
            Finding(
                code="generic-mkl-kernel",
                severity="note",
                seen=seen,
                why=(
                    "on AMD processors it holds code of its own and is not slow: 1024 x 1024 products"
                    " ran as fast as with others; on Intel's it would be slow"
                ),
                action=(
                    "on an Intel processor look at MKL_ENABLE_INSTRUCTIONS and MKL_CBWR; on AMD"
                    " nothing helps: MKL_DEBUG_CPU_TYPE has had no effect since 2020.1"
                ),
                evidence=(self._header.raw,) if self._header else (),
                count=self._count,
                total_ns=self._total_ns,
                share=whole.share(self._total_ns),
            )
        ]
