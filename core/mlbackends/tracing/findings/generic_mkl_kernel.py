"""MKL took its kernel file for no instruction set in particular."""

from mlbackends.model.trace import Header, MklCall, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found

_SETS = ("Advanced Vector Extensions", "AVX", "SSE", "Streaming SIMD")


class Finder(finder.Finder):
    """Looks at MKL's header."""

    WANTS = frozenset(("work", "notes"))
    WHY = (
        "on AMD processors it holds code of its own and is not slow: 1024 x 1024 products"
        " ran as fast as with others; on Intel's it would be slow"
    )
    ACTION = (
        "on an Intel processor look at MKL_ENABLE_INSTRUCTIONS and MKL_CBWR; on AMD"
        " nothing helps: MKL_DEBUG_CPU_TYPE has had no effect since 2020.1"
    )

    def key(self, record: Record) -> type | None:
        is_generic = (
            isinstance(record, Header)
            and record.tracer == "mkl"
            and not any(word in record.raw for word in _SETS)
        )
        return type(record) if is_generic or isinstance(record, MklCall) else None

    def result(self) -> Found:
        if Header in self.sums:
            seen = (
                "MKL's header names no instruction set, as where it takes its generic kernel file"
            )
            calls = self.sums[MklCall]
            headers = self.sums[Header].lines[:1]
            yield self.finding("note", seen, calls, evidence=headers)
