"""The exact result of a problem, and how far another result is from it."""

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

#: How far apart numbers near 1 are.
_UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: So many units in the last place of the largest number are allowed beside the plain computation's errors,
#: whose largest one is small by luck where there are few numbers.
_ALLOWED_UNITS = {"float64": 4.0, "float32": 4.0, "float16": 1.0, "bfloat16": 1.0}
#: Beyond, scores in float64 are too large to tell rounding from a wrong result by them.
_MOST_UNITS = 1e6


def right(problem: AttentionProblem, inputs: dict[str, Any]) -> "dict[str, Exact]":
    """Return what is right for inputs, by the plain formula in float64: the result, and gradients if wanted.

    inputs: by name, as `interchange.as_array` gives them; the gradient of the result is "grad_out".
    The result is named "", a gradient as its tensor.
    """
    tensors = inputs["query"], inputs["key"], inputs["value"], inputs.get("mask")
    more = {"sinks": inputs.get("sinks"), "page_table": inputs.get("page_table")}
    wide = replace(problem, inner_dtype="float64")
    exact_out, exact_sums = attend(wide, *tensors, **more)
    plain_out, plain_sums = attend(problem, *tensors, **more)
    plain_out = interchange.narrowed(plain_out, problem.dtype)
    # Rounding a score of 500 changes its weight by 250 units in the last place, in whatever formula; of
    # narrower types the error of the plain one has that.
    units = min(_largest(exact_sums), _MOST_UNITS) if problem.dtype == "float64" else 0.0
    found = {"": Exact(exact_out, plain_out, problem.dtype, units)}
    if problem.wants_gradient:
        grad_out = inputs["grad_out"]
        terms = _largest_terms(problem, inputs, exact_out, exact_sums)
        sinks = inputs.get("sinks")
        exact = gradients(wide, grad_out, *tensors, exact_out, exact_sums, sinks=sinks)
        plain = gradients(problem, grad_out, *tensors, plain_out, plain_sums, sinks=sinks)
        for name, gradient in exact._asdict().items():
            if gradient is not None:
                dtype = getattr(problem, name).dtype
                narrowed = interchange.narrowed(getattr(plain, name), dtype)
                found[name] = Exact(gradient, narrowed, dtype, units, terms[name])
    return found


def _largest_terms(
    problem: AttentionProblem, inputs: dict[str, Any], out: Any, sums: Any
) -> dict[str, float]:
    """Return the largest of the numbers that each gradient is the difference of, by tensor.

    A gradient of scores is P * (grad P - D); summed over what a mask or a single key sees alike, it is 0,
    and what anybody computes for it is what rounding left of the two terms. Here D, which is a row's sum of
    grad_out * out, is left out: as though other keys, of a hundredth of the weight, had made the result 0.
    The gradient of a sink is a sum over all rows of P * D, whose terms are counted by their magnitudes.
    """
    np = numpy()
    specs = {name: getattr(problem, name) for name in inputs if name != "grad_out"}
    arrays = dict(inputs)
    for name, each in inputs.items():
        dtype = specs[name].dtype if name in specs else problem.dtype
        if dtype != "bool":
            arrays[name] = interchange.widened(each, dtype, "float64")
            if name in specs:
                specs[name] = replace(specs[name], dtype="float64")
    mask, shape = arrays.get("mask"), None
    if mask is not None and mask.shape[-1] == 1:
        # Each row by itself: their terms may cancel by chance, but not what rounding leaves of them, which
        # grows with the magnitudes of all, in whatever order they are added.
        shape, rows = mask.shape, (*problem.leading_shape, problem.query_length, 1)
        mask = np.broadcast_to(mask, rows)
        of_mask = specs["mask"]
        specs["mask"] = TensorSpec(rows, of_mask.dtype, requires_grad=of_mask.requires_grad)
    query, key, value, grad_out = (arrays[name] for name in ("query", "key", "value", "grad_out"))
    wide = replace(problem, **specs)
    sinks = arrays.get("sinks")
    results = np.zeros_like(out), sums + 0.01
    found = gradients(wide, grad_out, query, key, value, mask, *results, sinks=sinks)
    terms = {name: each for name, each in found._asdict().items() if each is not None}
    if shape is not None and "mask" in terms:
        terms["mask"] = summed(np.abs(terms["mask"]), shape)
    if "sinks" in terms:
        shape = (*problem.leading_shape[-1:], 1)
        weights = np.exp(np.reshape(sinks, shape) - sums)
        terms["sinks"] = summed(weights * np.abs(grad_out * out).sum(-1), shape)
    return {name: _largest(each) for name, each in terms.items()}


def _largest(array: Any) -> float:
    """Return the largest magnitude among finite numbers."""
    np = numpy()
    return float(np.abs(np.where(np.isfinite(array), array, 0.0)).max(initial=0.0))


class Exact:
    """One tensor as it should be, and how far from that the plain computation in its type is.

    more_units: in the last place that are allowed beside the usual ones. largest_term: of the numbers that
    its numbers are differences of, 0 where they are none.
    """

    def __init__(
        self,
        exact: Any,
        plain: Any,
        dtype: str,
        more_units: float = 0.0,
        largest_term: float = 0.0,
    ) -> None:
        self.exact, self.dtype, self.largest_term = exact, dtype, largest_term
        self.allowed = (_ALLOWED_UNITS[dtype] + more_units) * _UNITS[dtype]
        self.reference_error = 0.0
        errors = self.judge(plain, tolerance=0.0)
        # In float64 the plain computation is the exact one.
        kind = "largest_allowed" if dtype == "float64" else "largest_absolute"
        self.reference_error = errors[kind]

    def judge(self, result: Any, tolerance: float) -> dict[str, Any]:
        """Return how far a result, as `interchange.as_array` gives it, is from the exact one.

        Allowed are `tolerance` times the error of the plain computation in the same type, and a few units
        in the last place of the largest number, or of the largest that these are differences of. In float64
        those stand for the plain computation's error.
        """
        np = numpy()
        found = interchange.widened(result, self.dtype, "float64")
        finite = np.isfinite(self.exact)
        with np.errstate(all="ignore"):
            same = (found == self.exact) | (np.isnan(found) & np.isnan(self.exact))
            error = np.abs(found - self.exact)
            misplaced = (np.isfinite(found) != finite) | (~finite & ~same)
            error = np.where(finite & np.isfinite(found), error, 0.0)
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
            "worst": [int(each) for each in worst],
        }

    def read(self, path: str, shape: tuple[int, ...]) -> Any:
        """Return a tensor that a backend has written. Raises ValueError where it has another size."""
        item, count = ITEM_BYTES[self.dtype], prod(shape)
        size = os.path.getsize(path)
        if size != count * item:
            needed = f"{count * item}: {count} elements of {self.dtype}, {item} bytes each"
            raise ValueError(f"has {size} bytes; it must have {needed}")
        result = numpy().fromfile(path, "uint16" if self.dtype == "bfloat16" else self.dtype)
        return result.reshape(shape)
