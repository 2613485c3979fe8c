"""Data in f32 was computed with in a smaller type: a runtime lowered the precision by itself."""

from collections import defaultdict

from mlbackends.model.trace import Primitive, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Sum, Whole, percent, times

_SMALLER = {"bf16", "f16"}
_PRODUCTS = {"matmul", "convolution", "deconvolution", "inner_product", "rnn", "gemm_api", "brgemm"}
_MODES = {"bf16", "f16", "tf32", "any"}


class Finder(finder.Finder):
    """Looks for reorders from f32 to a smaller type, for products in it, and for attributes that allow it."""

    def begin(self) -> None:
        self._reorders: dict[str, Sum] = defaultdict(Sum)
        self._products: dict[str, Sum] = defaultdict(Sum)
        self._allowed: dict[str, Sum] = defaultdict(Sum)

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if not isinstance(record, Primitive):
            return
        source, _, target = record.dtype.partition(":")
        if record.operation == "reorder":
            if source == "f32" and target in _SMALLER:
                self._reorders[target].add(record, count, total_ns)
        elif record.operation in _PRODUCTS:
            mode = record.derived.arguments.get("attr-fpmath", "").partition(":")[0]
            if source in _SMALLER:
                self._products[source].add(record, count, total_ns)
            elif source == "f32" and mode in _MODES:
                self._allowed[mode].add(record, count, total_ns)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one for each smaller type."""
        found = []
        for dtype, reorders in self._reorders.items():
            if dtype in self._products:
                products = self._products[dtype]
                seen = (
                    f"{times(reorders.count, 'reorder')} turned f32 into {dtype}, and"
                    f" {times(products.count, 'product')} ran in {dtype},"
                    f" {percent(whole.share(products.total_ns))} of the time"
                )
                evidence = reorders.evidence.lines + products.evidence.lines
                found.append(self._one(seen, dtype, evidence, products, whole))
        for mode, calls in self._allowed.items():
            seen = (
                f"{times(calls.count, 'call')} of products of f32 may compute in {mode}"
                f" (attr-fpmath), {percent(whole.share(calls.total_ns))} of the time"
            )
            found.append(self._one(seen, mode, calls.evidence.lines, calls, whole))
        return found

    def _one(
        self, seen: str, dtype: str, evidence: tuple[str, ...], calls: Sum, whole: Whole
    ) -> Finding:
        digits = "11 bits, 3 digits" if dtype in {"f16", "tf32"} else "8 bits, 2 to 3 digits"
        return self.finding(
            "medium",
            seen,
            why=f"results have the precision of {dtype} ({digits}) where f32's 24 bits may be expected",
            action=(
                "if it is not wanted: OpenVINO INFERENCE_PRECISION_HINT=f32; torch"
                " set_float32_matmul_precision('highest'); TensorFlow"
                " TF_SET_ONEDNN_FPMATH_MODE unset; ONEDNN_DEFAULT_FPMATH_MODE=STRICT"
            ),
            evidence=evidence,
            count=calls.count,
            total_ns=calls.total_ns,
            share=whole.share(calls.total_ns),
        )
