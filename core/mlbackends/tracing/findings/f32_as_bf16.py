"""Data in f32 was computed with in a smaller type: a runtime lowered the precision by itself."""

from mlbackends.model.trace import Primitive, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, percent, times

_SMALLER = {"bf16", "f16"}
_PRODUCTS = {"matmul", "convolution", "deconvolution", "inner_product", "rnn", "gemm_api", "brgemm"}
_MODES = {"bf16", "f16", "tf32", "any"}


class Finder(finder.Finder):
    """Looks for reorders from f32 to a smaller type, for products in it, and for attributes that allow it."""

    ACTION = (
        "if it is not wanted: OpenVINO INFERENCE_PRECISION_HINT=f32; torch"
        " set_float32_matmul_precision('highest'); TensorFlow"
        " TF_SET_ONEDNN_FPMATH_MODE unset; ONEDNN_DEFAULT_FPMATH_MODE=STRICT"
    )

    def key(self, record: Record) -> tuple[str, str] | None:
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
            share = self.share(calls.total_ns)
            if kind == "allowed":
                seen = (
                    f"{times(calls.count, 'call')} of products of f32 may compute in {dtype}"
                    f" (attr-fpmath), {percent(share)} of the time"
                )
            elif kind == "product" and ("reorder", dtype) in self.sums:
                reorders = self.sums["reorder", dtype]
                lines = reorders.lines + lines
                seen = (
                    f"{times(reorders.count, 'reorder')} turned f32 into {dtype}, and"
                    f" {times(calls.count, 'product')} ran in {dtype}, {percent(share)} of the time"
                )
            else:
                continue
            digits = "11 bits, 3 digits" if dtype in {"f16", "tf32"} else "8 bits, 2 to 3 digits"
            why = f"results have the precision of {dtype} ({digits}) where f32's 24 bits may be expected"
            yield self.finding("medium", seen, calls, why=why, evidence=lines)
