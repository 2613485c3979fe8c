"""The inputs of a problem, its exact result, and how far another is from that; in a process of its own.

    {"do": "prepare", "problem": {...}, "folder": PATH, "seed": 0}
            {"files": {"query": PATH, ...}, "grad_out": {...}, "errors": {"": 1e-7, "query": 1e-7, ...}}
    {"do": "judge", "path": PATH, "tolerance": 2.0}             {"": {"largest_absolute": 1e-7, ...}, ...}

A file holds the elements of a tensor in the order in which they lie in memory, a result's row by row. What
is computed is named "", and the gradients, where there are some, as their tensors.
"""

import os
from collections.abc import Callable
from typing import Any

import msgspec

from mlbackends.model.problem import AttentionProblem, TensorSpec, contiguous_strides
from mlbackends_kernels.checking.exact import right
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import numpy

_SEEN = 0.75
"""The share of the keys that a mask shows."""
_TENSORS = ("query", "key", "value", "mask")


class Values:
    """The inputs of one problem on disk, and what is right: the result, and gradients if required.

    grad_out: the record of the gradient that the backward pass begins with.
    """

    def __init__(self, problem: AttentionProblem, folder: str, seed: int) -> None:
        self.problem, self.grad_out = problem, _like_the_query(problem)
        random = numpy().random.default_rng(seed)
        inputs = {name: _numbers(getattr(problem, name), random) for name in _TENSORS[:3]}
        if problem.mask is not None:
            inputs["mask"] = _mask(problem.mask, random)
        specs = {name: getattr(problem, name) for name in inputs}
        if problem.wants_gradient:
            inputs["grad_out"] = _numbers(self.grad_out, random)
            specs["grad_out"] = self.grad_out
        self.files = {name: os.path.join(folder, f"{name}.bin") for name in inputs}
        for name, array in inputs.items():
            _in_memory_order(array, specs[name]).tofile(self.files[name])
        self.right = right(problem, inputs)

    def judge_files(self, path: str, tolerance: float) -> dict[str, dict[str, Any]]:
        """Judge what a backend has written. Raises ValueError for what has another size."""
        found = {}
        for name, exact in self.right.items():
            try:
                found[name] = exact.judge_file(f"{path}.{name}" if name else path, tolerance)
            except (OSError, ValueError) as error:
                what = f"the gradient of {name}" if name else "the result"
                why = error if isinstance(error, ValueError) else "is missing"
                raise ValueError(f"{what} {why}") from None
        return found


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


def _like_the_query(problem: AttentionProblem) -> TensorSpec:
    """Return the record of the result's gradient; it lies in memory as the query, whose result it follows."""
    shape, strides = problem.output_shape, problem.query.strides
    if len(shape) != len(strides):
        return TensorSpec(shape, problem.dtype)
    order = sorted(range(len(shape)), key=lambda at: -strides[at])
    lain = contiguous_strides(tuple(shape[at] for at in order))
    found = [0] * len(shape)
    for at, stride in zip(order, lain, strict=True):
        found[at] = stride
    return TensorSpec(shape, problem.dtype, tuple(found))


def answering() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what answers requests."""
    values: list[Values] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "judge":
            return values[0].judge_files(request["path"], request["tolerance"])
        values.clear()
        problem = msgspec.convert(request["problem"], AttentionProblem)
        values.append(Values(problem, request["folder"], request["seed"]))
        (made,) = values
        return {
            "files": made.files,
            "grad_out": msgspec.to_builtins(made.grad_out),
            "errors": {name: each.reference_error for name, each in made.right.items()},
        }

    return answer
