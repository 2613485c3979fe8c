"""Data in f32 was computed with in a smaller type: a runtime lowered the precision by itself."""

from collections.abc import Sequence

from mlbackends.model.trace import Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.finder import Evidence, Machine, Whole, percent, times

_SMALLER = {"bf16", "f16"}
_PRODUCTS = {"matmul", "convolution", "deconvolution", "inner_product", "rnn", "gemm_api", "brgemm"}
_MODES = {"bf16", "f16", "tf32", "any"}


class Finder:
    """Looks for reorders from f32 to a smaller type, for products in it, and for attributes that allow it."""

    WANTS = frozenset(("work",))

    def __init__(self, machine: Machine) -> None:
        del machine
        self._reorders: dict[str, int] = {}
        self._products: dict[str, list[float]] = {}
        self._allowed: dict[str, list[float]] = {}
        self._evidence: dict[str, Evidence] = {}

    def add(self, record: Record) -> None:
        """Take in one record."""
        self._take(record, 1, record.duration_ns or 0.0)

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added."""
        self._take(record, count, sum(durations))

    def _take(self, record: Record, count: int, total_ns: float) -> None:
        if not isinstance(record, Primitive):
            return
        operation = record.operation
        if operation == "reorder":
            source, _, target = record.dtype.partition(":")
            if source == "f32" and target in _SMALLER:
                self._reorders[target] = self._reorders.get(target, 0) + count
                self._keep(target, record)
        elif operation in _PRODUCTS:
            mode = record.derived.arguments.get("attr-fpmath", "").partition(":")[0]
            source = record.dtype.partition(":")[0]
            if source in _SMALLER:
                sums, which = self._products.setdefault(source, [0, 0.0]), f"{source} product"
            elif source == "f32" and mode in _MODES:
                sums, which = self._allowed.setdefault(mode, [0, 0.0]), f"{mode} allowed"
            else:
                return
            sums[0] += count
            sums[1] += total_ns
            self._keep(which, record)

    def _keep(self, which: str, record: Record) -> None:
        self._evidence.setdefault(which, Evidence(2)).add(record)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one for each smaller type."""
        found = []
        for dtype, reorders in self._reorders.items():
            count, total = self._products.get(dtype, [0, 0.0])
            if count:
                seen = (
                    f"{times(reorders, 'reorder')} turned f32 into {dtype}, and"
                    f" {times(int(count), 'product')} ran in {dtype},"
                    f" {percent(whole.share(total))} of the time"
                )
                evidence = self._evidence[dtype].lines + self._evidence[f"{dtype} product"].lines
                found.append(_one(seen, dtype, evidence, int(count), total, whole))
        for mode, (count, total) in self._allowed.items():
            seen = (
                f"{times(int(count), 'call')} of products of f32 may compute in {mode}"
                f" (attr-fpmath), {percent(whole.share(total))} of the time"
            )
            evidence = self._evidence[f"{mode} allowed"].lines
            found.append(_one(seen, mode, evidence, int(count), total, whole))
        return found


def _one(
    seen: str, dtype: str, evidence: tuple[str, ...], count: int, total: float, whole: Whole
) -> Finding:
    digits = "11 bits, 3 digits" if dtype in {"f16", "tf32"} else "8 bits, 2 to 3 digits"
    return Finding(
        code="f32-as-bf16",
        severity="medium",
        seen=seen,
        why=f"results have the precision of {dtype} ({digits}) where f32's 24 bits may be expected",
        action=(
            "if it is not wanted: OpenVINO INFERENCE_PRECISION_HINT=f32; torch"
            " set_float32_matmul_precision('highest'); TensorFlow"
            " TF_SET_ONEDNN_FPMATH_MODE unset; ONEDNN_DEFAULT_FPMATH_MODE=STRICT"
        ),
        evidence=evidence,
        count=count,
        total_ns=total,
        share=whole.share(total),
    )
