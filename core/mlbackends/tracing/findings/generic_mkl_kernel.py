"""MKL took its kernel file for no instruction set in particular."""

from mlbackends.model.trace import Header, MklCall, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Whole

_SETS = ("Advanced Vector Extensions", "AVX", "SSE", "Streaming SIMD")


class Finder(finder.Finder):
    """Looks at MKL's header, and at the kernel file if it is known."""

    WANTS = frozenset(("work", "notes"))

    def begin(self) -> None:
        self._header: Header | None = None
        self._count = 0
        self._total_ns = 0.0

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, MklCall):
            self._count += count
            self._total_ns += total_ns
        elif isinstance(record, Header) and record.tracer == "mkl":
            names_one = any(word in record.raw for word in _SETS)
            self._header = self._header if names_one else record

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if the kernels are the generic ones."""
        file = self.machine.mkl_kernel
        if file.startswith(("libmkl_def", "mkl_def")):
            seen = f"the process has {file} mapped, MKL's generic kernel file"
        elif not file and self._header is not None:
            seen = (
                "MKL's header names no instruction set, as where it takes its generic kernel file"
            )
        else:
            return []
        return [
            self.finding(
                "note",
                seen,
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
