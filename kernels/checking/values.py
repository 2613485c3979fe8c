"""The values of a problem, its exact result, and how far another is from that; in a process of its own.

    {"do": "prepare", "problem": {...}, "folder": PATH, "seed": 0}
                                 {"files": {"query": PATH, ...}, "reference_error": 1e-7}
    {"do": "judge", "path": PATH, "tolerance": 2.0}             {"largest_absolute": 1e-7, ...}

A file holds the elements of a tensor in the order in which they lie in memory, a result's row by row.
"""

import os
import sys
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.kernels.attention_math.forward import attend
from mlbackends.kernels.tensors import interchange
from mlbackends.kernels.tensors.arithmetic import numpy
from mlbackends.model.problem import AttentionProblem, TensorSpec

#: How far apart numbers near 1 are.
_UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: So many units in the last place of the largest number are allowed beside the plain computation's errors,
#: whose largest one is small by luck where there are few numbers.
_ALLOWED_UNITS = {"float64": 4.0, "float32": 4.0, "float16": 1.0, "bfloat16": 1.0}
_SEEN = 0.75
"""The share of the keys that a mask shows."""


class Values:
    """The inputs of one problem on disk, and the result that is right."""

    def __init__(self, problem: AttentionProblem, folder: str, seed: int) -> None:
        self.problem = problem
        np = numpy()
        random = np.random.default_rng(seed)
        inputs = {
            name: _numbers(spec, random)
            for name, spec in zip(
                ("query", "key", "value"), (problem.query, problem.key, problem.value), strict=True
            )
        }
        if problem.mask is not None:
            inputs["mask"] = _mask(problem.mask, random)
        self.files = {name: os.path.join(folder, f"{name}.bin") for name in inputs}
        for name, array in inputs.items():
            _in_memory_order(array, getattr(problem, name)).tofile(self.files[name])
        tensors = [inputs[name] for name in ("query", "key", "value")]
        tensors.append(inputs.get("mask"))
        self.exact = attend(replace(problem, inner_dtype="float64"), *tensors)[0]
        plain = interchange.narrowed(attend(problem, *tensors)[0], problem.dtype)
        self.reference_error = 0.0
        errors = self.judge(plain, tolerance=0.0)
        self.reference_error = errors["largest_absolute"]
        if problem.dtype == "float64":
            # There the plain computation is the exact one.
            self.reference_error = errors["largest_allowed"]

    def judge(self, result: Any, tolerance: float) -> dict[str, Any]:
        """Return how far a result, as `interchange.as_array` gives it, is from the exact one.

        Allowed are `tolerance` times the error of the plain computation in the same type, and a few units
        in the last place of the largest number. In float64 those stand for the plain computation's error.
        """
        np = numpy()
        found = interchange.widened(result, self.problem.dtype, "float64")
        finite = np.isfinite(self.exact)
        with np.errstate(all="ignore"):
            same = (found == self.exact) | (np.isnan(found) & np.isnan(self.exact))
            error = np.abs(found - self.exact)
            misplaced = (np.isfinite(found) != finite) | (~finite & ~same)
            error = np.where(finite & np.isfinite(found), error, 0.0)
            scale = np.abs(np.where(finite, self.exact, 0.0))
            relative = np.where(scale > 0, error / scale, 0.0)
        largest = min(float(error.max(initial=0.0)), sys.float_info.max)  # JSON has no infinity
        dtype = self.problem.dtype
        units = _ALLOWED_UNITS[dtype] * _UNITS[dtype] * float(scale.max(initial=0.0))
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

    def judge_file(self, path: str, tolerance: float) -> dict[str, Any]:
        """Judge a result that a backend has written."""
        np = numpy()
        result = np.fromfile(path, _stored(self.problem.dtype))
        wanted = int(np.prod(self.problem.output_shape, dtype=np.int64))
        if result.size != wanted:
            raise ValueError(f"the result has {result.size} elements; it must have {wanted}")
        return self.judge(result.reshape(self.problem.output_shape), tolerance)


def _numbers(spec: TensorSpec, random: Any) -> Any:
    """Return standard normal numbers as `interchange.as_array` would give them."""
    kind = "float64" if spec.dtype == "float64" else "float32"
    return interchange.narrowed(random.standard_normal(spec.shape, kind), spec.dtype)


def _mask(spec: TensorSpec, random: Any) -> Any:
    """Return a mask that shows three keys of four, and weighs them where it is one of numbers."""
    seen = random.random(spec.shape, "float32") < _SEEN
    if spec.dtype == "bool":
        return seen
    numbers = random.standard_normal(spec.shape, "float32")
    return interchange.narrowed(numpy().where(seen, numbers, -numpy().inf), spec.dtype)


def _in_memory_order(array: Any, spec: TensorSpec) -> Any:
    """Return the array with its dimensions in the order of falling strides."""
    order = sorted(range(len(spec.shape)), key=lambda at: -spec.strides[at])
    return numpy().ascontiguousarray(array.transpose(order))


def _stored(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype


def main() -> None:
    """Answer requests until standard input ends."""
    from mlbackends.kernels.checking import serving

    values: list[Values] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "judge":
            return values[0].judge_file(request["path"], request["tolerance"])
        values.clear()
        problem = msgspec.convert(request["problem"], AttentionProblem)
        values.append(Values(problem, request["folder"], request["seed"]))
        return {"files": values[0].files, "reference_error": values[0].reference_error}

    serving.answer_all(answer)
