"""The exact result of a problem, and the error of another result."""

import os
import sys
from math import prod
from typing import Any

from msgspec.structs import replace

from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.attention_cpu.formula import attend, gradients, summed
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import numpy

#: The distance of neighbouring numbers near 1.
_UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: The units in the last place of the largest number that are allowed in addition to the errors of plain
#: attention, whose largest one may be small by chance for few numbers.
_ALLOWED_UNITS = {"float64": 4.0, "float32": 4.0, "float16": 1.0, "bfloat16": 1.0}
#: With larger scores in float64, rounding errors cannot be distinguished from wrong results.
_MOST_UNITS = 1e6


def right(problem: AttentionProblem, inputs: dict[str, Any]) -> "dict[str, Exact]":
    """Return the exact result for inputs, by plain attention in float64, and the gradients if required.

    inputs: by name, as `interchange.as_array` returns them, with the gradient of the result as "grad_out".
    The result has the name "", a gradient the name of its tensor.
    """
    tensors = inputs["query"], inputs["key"], inputs["value"], inputs.get("mask")
    more = {name: inputs.get(name) for name in ("sinks", "alibi_slopes")}
    pages = inputs.get("page_table")
    wide = replace(problem, inner_dtype="float64")
    exact_out, exact_sums = attend(wide, *tensors, **more, page_table=pages)
    plain_out, plain_sums = attend(problem, *tensors, **more, page_table=pages)
    plain_out = interchange.narrowed(plain_out, problem.dtype)
    # Rounding a score of 500 changes its weight by 250 units in the last place, in any implementation. The
    # error of plain attention in narrower types includes that.
    units = min(_largest(exact_sums), _MOST_UNITS) if problem.dtype == "float64" else 0.0
    exact_tensors = {"": Exact(exact_out, plain_out, problem.dtype, units)}
    if problem.wants_gradient:
        grad_out = inputs["grad_out"]
        terms = _largest_terms(problem, inputs, exact_out, exact_sums)
        exact = gradients(wide, grad_out, *tensors, exact_out, exact_sums, **more)
        plain = gradients(problem, grad_out, *tensors, plain_out, plain_sums, **more)
        for name, gradient in exact._asdict().items():
            if gradient is not None:
                dtype = getattr(problem, name).dtype
                narrowed = interchange.narrowed(getattr(plain, name), dtype)
                exact_tensors[name] = Exact(gradient, narrowed, dtype, units, terms[name])
    return exact_tensors


def _largest_terms(
    problem: AttentionProblem, inputs: dict[str, Any], out: Any, sums: Any
) -> dict[str, float]:
    """Return, by tensor, the magnitude of the largest term in the differences that make up its gradient.

    The gradient of a score is P * (grad P - D), where D is a row's sum of grad_out * out. Summed over all
    keys it is 0, so that any computed value is the rounding error of the two terms. D is left out here, as if
    other keys with a hundredth of the weight had made the result 0. The gradient of a sink is a sum over all
    rows of P * D, whose magnitudes are summed.
    """
    np = numpy()
    specs = {name: getattr(problem, name) for name in inputs if name != "grad_out"}
    arrays = dict(inputs)
    for name, array in inputs.items():
        dtype = specs[name].dtype if name in specs else problem.dtype
        if dtype != "bool":
            arrays[name] = interchange.widened(array, dtype, "float64")
            if name in specs:
                specs[name] = replace(specs[name], dtype="float64")
    mask, shape = arrays.get("mask"), None
    if mask is not None and mask.shape[-1] == 1:
        # Row by row: the terms of rows may cancel, but their rounding errors, which grow with the magnitudes
        # of all, do not.
        shape, rows = mask.shape, (*problem.leading_shape, problem.query_length, 1)
        mask = np.broadcast_to(mask, rows)
        of_mask = specs["mask"]
        specs["mask"] = TensorSpec(rows, of_mask.dtype, requires_grad=of_mask.requires_grad)
    query, key, value, grad_out = (arrays[name] for name in ("query", "key", "value", "grad_out"))
    wide = replace(problem, **specs)
    sinks, slopes = arrays.get("sinks"), arrays.get("alibi_slopes")
    results = np.zeros_like(out), sums + 0.01
    more = {"sinks": sinks, "alibi_slopes": slopes}
    parts = gradients(wide, grad_out, query, key, value, mask, *results, **more)._asdict()
    terms = {name: part for name, part in parts.items() if part is not None}
    if shape is not None and "mask" in terms:
        terms["mask"] = summed(np.abs(terms["mask"]), shape)
    if "sinks" in terms:
        shape = (*problem.leading_shape[-1:], 1)
        weights = np.exp(np.reshape(sinks, shape) - sums)
        terms["sinks"] = summed(weights * np.abs(grad_out * out).sum(-1), shape)
    return {name: _largest(term) for name, term in terms.items()}


def _largest(array: Any) -> float:
    """Return the largest magnitude among finite numbers."""
    np = numpy()
    return float(np.abs(np.where(np.isfinite(array), array, 0.0)).max(initial=0.0))


class Exact:
    """The exact values of one tensor, and the error of plain attention in its dtype.

    more_units: units in the last place that are allowed in addition to the usual ones. largest_term: the
    largest term of the differences that its numbers are, 0 if they are none.
    """

    def __init__(
        self, exact: Any, plain: Any, dtype: str, more_units: float = 0.0, largest_term: float = 0.0
    ) -> None:
        self.exact, self.dtype, self.largest_term = exact, dtype, largest_term
        self.allowed = (_ALLOWED_UNITS[dtype] + more_units) * _UNITS[dtype]
        self.reference_error = 0.0
        errors = self.judge(plain, tolerance=0.0)
        # In float64 plain attention is the exact result.
        kind = "largest_allowed" if dtype == "float64" else "largest_absolute"
        self.reference_error = errors[kind]

    def judge(self, result: Any, tolerance: float) -> dict[str, Any]:
        """Return the errors of a result, which is as `interchange.as_array` returns it.

        The limit is `tolerance` times the error of plain attention in the same dtype, plus a few units in the
        last place of the largest number or of the largest term. In float64 only the latter.
        """
        np = numpy()
        values = interchange.widened(result, self.dtype, "float64")
        finite = np.isfinite(self.exact)
        with np.errstate(all="ignore"):
            same = (values == self.exact) | (np.isnan(values) & np.isnan(self.exact))
            error = np.abs(values - self.exact)
            misplaced = (np.isfinite(values) != finite) | (~finite & ~same)
            error = np.where(finite & np.isfinite(values), error, 0.0)
            scale = np.abs(np.where(finite, self.exact, 0.0))
            rows = scale.max(axis=-1, keepdims=True, initial=0.0)
            relative = np.where(rows > 0, error / rows, 0.0)
        largest = min(float(error.max(initial=0.0)), sys.float_info.max)  # JSON has no infinity
        height = max(float(scale.max(initial=0.0)), self.largest_term)
        units = self.allowed * height
        at = misplaced if misplaced.any() else error
        worst = np.unravel_index(int(np.argmax(at)), at.shape) if at.size else ()
        return {
            "largest_absolute": largest,
            "largest_relative": min(float(relative.max(initial=0.0)), sys.float_info.max),
            "largest_allowed": tolerance * self.reference_error + units,
            "in_reference_errors": largest / self.reference_error if self.reference_error else None,
            "misplaced": int(misplaced.sum()),
            "worst": [int(index) for index in worst],
        }

    def read(self, path: str, shape: tuple[int, ...]) -> Any:
        """Return a tensor that a backend has written. Raises ValueError for a file of another size."""
        item, count = ITEM_BYTES[self.dtype], prod(shape)
        size = os.path.getsize(path)
        if size != count * item:
            needed = f"{count * item}: {count} elements of {self.dtype}, {item} bytes each"
            raise ValueError(f"has {size} bytes; it must have {needed}")
        result = numpy().fromfile(path, "uint16" if self.dtype == "bfloat16" else self.dtype)
        return result.reshape(shape)
