"""What the chosen code reveals: slow implementations, its instruction set, its precision."""

from collections import defaultdict
from collections.abc import Hashable

from mlbackends.base.errors import counted
from mlbackends.base.tables import table
from mlbackends.model.trace import Header, Info, MklCall, Primitive, Record
from mlbackends.tracing.finder import Finder, Found, Sum, by_share, percent, took

_MOST_REFERENCES = 5
#: Instruction sets that every element type can use; AMX, above, is for small types alone.
_LEVELS = ("", "SSE4.1", "AVX", "AVX2", "AVX-512")
_NAMES = {"avx512": 4, "avx10": 4, "amx": 4, "avx2": 3, "avx": 2, "sse41": 1, "sse4": 1}
_WORDS = {"AMX": 4, "AVX-512": 4, "AVX10": 4, "AVX2": 3, "AVX": 2, "SSE4.1": 1}
_CAPABILITIES = {"AVX512": 4, "AVX2": 3}
_LEAST_SHARE = 0.01
_SETS_OF_MKL = ("Advanced Vector Extensions", "AVX", "SSE", "Streaming SIMD")
_OLD_BRANCHES = ("COMPATIBLE", "SSE2", "SSE3", "SSSE3", "SSE4_1", "SSE4_2", "AVX")
_SMALLER = {"bf16", "f16"}
_PRODUCTS = {"matmul", "convolution", "deconvolution", "inner_product", "rnn", "gemm_api", "brgemm"}
_MODES = {"bf16", "f16", "tf32", "any"}


class ReferenceImplementation(Finder):
    """Time went into oneDNN's reference or plain implementations, which are right but slow."""

    WANTS = frozenset(("work",))

    def key(self, record: Record) -> Hashable | None:
        if isinstance(record, Primitive) and record.slow_path:
            return record.operation, record.implementation, record.slow_path
        return None

    def result(self) -> Found:
        worst = sorted(self.sums.items(), key=lambda item: -item[1].total_ns)
        for (operation, implementation, word), calls in worst[:_MOST_REFERENCES]:
            # A reference part inside a larger implementation may be a small part of its time.
            inside = word.endswith(" inside")
            severity = by_share(self.share(calls.total_ns), high=0.1, medium=0.01)
            yield self.finding(
                "low" if inside else severity,
                f"{counted(calls.count, 'call')} of {operation} ran {implementation}: {self.time_of(calls)}",
                calls,
                why=(
                    f"{word.removesuffix(' inside')!r} in the name means code without vector"
                    f" instructions{' (here: a part of the implementation)' if inside else ''},"
                    " often 10 to 100 times slower"
                ),
            )


class IsaBelowCpu(Finder):
    """oneDNN ran code for a lesser instruction set than the processor, or its own header, has.

    The header's instruction set, the kernels' names and, if known, the processor's are compared.
    """

    WANTS = frozenset(("work", "notes"))

    def key(self, record: Record) -> Hashable | None:
        """Return the kind of record and the place in _LEVELS of the instruction set that it names."""
        level = 0
        if isinstance(record, Info) and record.topic == "cpu":
            text = record.values.get("isa", "")
            level = next((level for word, level in _WORDS.items() if word in text), 0)
        elif isinstance(record, Primitive) and record.isa:
            level = next((level for word, level in _NAMES.items() if record.isa.startswith(word)), 0)
        return (type(record), level) if level else None

    def result(self) -> Found:
        header = min((level for kind, level in self.sums if kind is Info), default=0)
        processor = _CAPABILITIES.get(self.machine.capability, 0)
        if 0 < header < processor:
            yield self.finding(
                "high",
                f"oneDNN uses {_LEVELS[header]}; this processor has {_LEVELS[processor]}",
                why=self.TEXTS["narrow"],
                action=self.TEXTS["unset"],
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
                f"{_LEVELS[level]} {counted(calls.count, 'call')} {took(calls.total_ns)}"
                for level, calls in reversed(below.items())
            )
            yield self.finding(
                by_share(share, high=1.0, medium=0.1),
                f"{percent(share)} of the time ran kernels below {_LEVELS[best]}, which"
                f" {'other calls use' if best in kernels else 'the header names'}: {sums}",
                why="no kernel for wider vectors supports these problems",
                action="trace with --level dispatch: the dispatch view shows why the others refused",
                evidence=self.lines_of(*below.values())[:4],
                count=sum(calls.count for calls in below.values()),
                total_ns=total,
                share=share,
            )


class GenericMklKernel(Finder):
    """MKL's header names no instruction set: it took its kernel file for none in particular."""

    WANTS = frozenset(("work", "notes"))
    WHY, ACTION = (table("libraries/mkl_on_amd")[name] for name in ("why", "action"))

    def key(self, record: Record) -> Hashable | None:
        is_generic = (
            isinstance(record, Header)
            and record.tracer == "mkl"
            and not any(word in record.raw for word in _SETS_OF_MKL)
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


class MklCbwr(Finder):
    """MKL computed by a fixed branch of its code (MKL_CBWR), so that results are equal elsewhere too.

    Source: oneMKL Developer Guide, "Specifying Code Branches". Measured with MKL 2024.2 on Zen 4, one
    thread, sgemm of 512: COMPATIBLE 0.4 of the speed, AUTO and AUTO,STRICT 0.95 to 1; transforms are as
    fast in each.
    """

    WANTS = frozenset(("notes",))

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
        for mode, fixed in by_mode.items():
            branch, _, strict = mode.partition(",")
            share = self.share(fixed.total_ns)
            severity = "note"
            if branch in _OLD_BRANCHES:
                severity = by_share(share, high=0.5, medium=0.05)
            elif strict or (branch.startswith("AVX2") and self._has_avx512):
                severity = by_share(share, medium=0.5)
            seen = f"{counted(fixed.count, 'call')} of MKL ran the branch {mode}: {self.time_of(fixed)}"
            yield self.finding(severity, seen, fixed)


class F32AsBf16(Finder):
    """Data in f32 was computed with in a smaller type: a runtime lowered the precision by itself.

    Signs are reorders from f32 to a smaller type with products in it, and attributes that allow it.
    """

    WANTS = frozenset(("work",))

    def key(self, record: Record) -> Hashable | None:
        if not isinstance(record, Primitive):
            return None
        source, _, target = record.dtype.partition(":")
        if record.operation == "reorder" and source == "f32" and target in _SMALLER:
            return "reorder", target
        if record.operation in _PRODUCTS:
            mode = record.derived.arguments.get("attr-fpmath", "").partition(":")[0]
            if source in _SMALLER:
                return "product", source
            if source == "f32" and mode in _MODES:
                return "allowed", mode
        return None

    def result(self) -> Found:
        for (kind, dtype), calls in list(self.sums.items()):
            lines = calls.lines
            share = percent(self.share(calls.total_ns))
            if kind == "allowed":
                seen = (
                    f"{counted(calls.count, 'call')} of products of f32 may compute in {dtype}"
                    f" (attr-fpmath), {share} of the time"
                )
            elif kind == "product" and ("reorder", dtype) in self.sums:
                reorders = self.sums["reorder", dtype]
                lines = reorders.lines + lines
                seen = (
                    f"{counted(reorders.count, 'reorder')} turned f32 into {dtype}, and"
                    f" {counted(calls.count, 'product')} ran in {dtype}, {share} of the time"
                )
            else:
                continue
            digits = "11 bits, 3 digits" if dtype in {"f16", "tf32"} else "8 bits, 2 to 3 digits"
            why = f"results have the precision of {dtype} ({digits}) where f32's 24 bits may be expected"
            yield self.finding("medium", seen, calls, why=why, evidence=lines)
