"""oneDNN ran code for a lesser instruction set than the processor, or its own header, has."""

from mlbackends.model.trace import Info, Primitive, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, by_share, percent, times, took

#: Instruction sets that every element type can use; AMX, above, is for small types alone.
_LEVELS = ("", "SSE4.1", "AVX", "AVX2", "AVX-512")
_NAMES = {"avx512": 4, "avx10": 4, "amx": 4, "avx2": 3, "avx": 2, "sse41": 1, "sse4": 1}
_WORDS = {"AMX": 4, "AVX-512": 4, "AVX10": 4, "AVX2": 3, "AVX": 2, "SSE4.1": 1}
_CAPABILITIES = {"AVX512": 4, "AVX2": 3}
_LEAST_SHARE = 0.01


class Finder(finder.Finder):
    """Compares the header's instruction set, the kernels' names and, if known, the processor's."""

    WANTS = frozenset(("work", "notes"))

    def key(self, record: Record) -> tuple[type, int] | None:
        """Return the kind of record and the place in _LEVELS of the instruction set that it names."""
        level = 0
        if isinstance(record, Info) and record.topic == "cpu":
            text = record.values.get("isa", "")
            level = next((level for word, level in _WORDS.items() if word in text), 0)
        elif isinstance(record, Primitive) and record.isa:
            starts = (level for word, level in _NAMES.items() if record.isa.startswith(word))
            level = next(starts, 0)
        return (type(record), level) if level else None

    def result(self) -> Found:
        header = min((level for kind, level in self.sums if kind is Info), default=0)
        processor = _CAPABILITIES.get(self.machine.capability, 0)
        if 0 < header < processor:
            yield self.finding(
                "high",
                f"oneDNN uses {_LEVELS[header]}; this processor has {_LEVELS[processor]}",
                why="narrower vectors do less work a cycle, often half",
                action=(
                    "unset ONEDNN_MAX_CPU_ISA, DNNL_MAX_CPU_ISA and ONEDNN_CPU_ISA_HINTS; in a"
                    " virtual machine, pass the host's processor features on"
                ),
                evidence=self.sums[Info, header].lines[:1],
                total_ns=self.all_ns,
                share=1.0,
            )
        kernels = {level: calls for (kind, level), calls in self.sums.items() if kind is Primitive}
        best = header or max(kernels, default=0)
        below = {level: kernels[level] for level in sorted(kernels) if level < best}
        total = sum(calls.total_ns for calls in below.values())
        share = self.share(total)
        if share >= _LEAST_SHARE:
            sums = ", ".join(
                f"{_LEVELS[level]} {times(calls.count, 'call')} {took(calls.total_ns)}"
                for level, calls in reversed(below.items())
            )
            yield self.finding(
                by_share(share, high=1.0, medium=0.1),
                f"{percent(share)} of the time ran kernels below {_LEVELS[best]}, which"
                f" {'other calls use' if best in kernels else 'the header names'}: {sums}",
                why="no kernel for wider vectors supports these problems",
                action="trace with --level dispatch: the dispatch view shows why the others refused",
                evidence=tuple(line for calls in below.values() for line in calls.lines)[:4],
                count=sum(calls.count for calls in below.values()),
                total_ns=total,
                share=share,
            )
