"""MKL took its kernel file for no instruction set in particular."""

from mlbackends.base.tables import table
from mlbackends.model.trace import Header, MklCall, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, by_share

_SETS = ("Advanced Vector Extensions", "AVX", "SSE", "Streaming SIMD")


class Finder(finder.Finder):
    """Looks at MKL's header."""

    WANTS = frozenset(("work", "notes"))
    WHY, ACTION = (table("libraries/mkl_on_amd")[name] for name in ("why", "action"))

    def key(self, record: Record) -> type | None:
        is_generic = (
            isinstance(record, Header)
            and record.tracer == "mkl"
            and not any(word in record.raw for word in _SETS)
        )
        return type(record) if is_generic or isinstance(record, MklCall) else None

    def result(self) -> Found:
        if Header not in self.sums:
            return
        calls = self.sums[MklCall]
        severity, why, action = "note", self.WHY, self.ACTION
        if self.machine.vendor == "Intel":
            why = "MKL names the instruction set of every Intel processor that it has code for"
            action = "look at MKL_ENABLE_INSTRUCTIONS and MKL_CBWR, and for a newer MKL"
            severity = by_share(self.share(calls.total_ns), medium=0.1)
        elif not self.machine.vendor:
            why = f"on Intel processors this is slow; on AMD it is normal. {why}"
            action = f"on Intel look at MKL_ENABLE_INSTRUCTIONS and MKL_CBWR. On AMD: {action}"
        yield self.finding(
            severity,
            "MKL's header names no instruction set, which suggests its generic kernels",
            calls,
            why=why,
            action=action,
            evidence=self.sums[Header].lines[:1],
        )
