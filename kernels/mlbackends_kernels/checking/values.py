"""The inputs of a problem, its exact result, and the errors of other results, in a separate process.

    {"do": "prepare", "problem": {...}, "folder": PATH, "seed": 0}
            {"files": {"query": PATH, ...}, "grad_out": {...}, "errors": {"": 1e-7, "query": 1e-7, ...}}
    {"do": "judge", "path": PATH, "tolerance": 2.0}             {"": {"largest_absolute": 1e-7, ...}, ...}

A file contains the elements of a tensor in memory order, those of a result row by row. The result has the
name "", a gradient the name of its tensor.
"""

import os
from collections.abc import Callable
from typing import Any

import msgspec

from mlbackends.model.problem import AttentionProblem, TensorSpec, contiguous_strides
from mlbackends.sdpa.verify.problem_size import Sample, sample, sample_text, sampled
from mlbackends_kernels.checking.exact import right
from mlbackends_kernels.tensors import interchange
from mlbackends_kernels.tensors.arithmetic import numpy

#: The share of the keys that a mask leaves visible.
_SHOWN = 0.75


class Values:
    """The inputs of one problem on disk, and the exact result, with gradients if required.

    grad_out: the record of the gradient of the result, in the memory layout of the query.
    """

    def __init__(self, problem: AttentionProblem, folder: str, seed: int) -> None:
        shape, strides = problem.output_shape, problem.query.strides
        self.grad_out = TensorSpec(shape, problem.dtype)
        if len(shape) == len(strides):
            order = _by_falling_stride(problem.query)
            lain = dict(zip(order, contiguous_strides(tuple(shape[at] for at in order)), strict=True))
            strides = tuple(lain[at] for at in range(len(shape)))
            self.grad_out = TensorSpec(shape, problem.dtype, strides)
        random = numpy().random.default_rng(seed)
        specs = {"query": problem.query, "key": problem.key, "value": problem.value}
        inputs = {name: _numbers(spec, random) for name, spec in specs.items()}
        if problem.mask is not None:
            specs["mask"] = problem.mask
            shown = random.random(problem.mask.shape, "float32") < _SHOWN
            inputs["mask"] = shown
            if problem.mask.dtype != "bool":
                numbers = random.standard_normal(problem.mask.shape, "float32")
                numbers = numpy().where(shown, numbers, -numpy().inf)
                inputs["mask"] = interchange.narrowed(numbers, problem.mask.dtype)
        if problem.sinks is not None:
            specs["sinks"] = problem.sinks
            inputs["sinks"] = _numbers(problem.sinks, random)
        if problem.alibi_slopes is not None:
            specs["alibi_slopes"] = slopes = problem.alibi_slopes
            powers = numpy().arange(1, slopes.shape[0] + 1, dtype="float32") * (-8 / slopes.shape[0])
            inputs["alibi_slopes"] = interchange.narrowed(numpy().exp2(powers), slopes.dtype)
        if problem.page_table is not None:
            specs["page_table"] = problem.page_table
            inputs["page_table"] = _pages(problem, random)
        if problem.wants_gradient:
            specs["grad_out"] = self.grad_out
            inputs["grad_out"] = _numbers(self.grad_out, random)
        self.files = {name: os.path.join(folder, f"{name}.bin") for name in inputs}
        for name, array in inputs.items():
            array = array.transpose(_by_falling_stride(specs[name]))
            numpy().ascontiguousarray(array).tofile(self.files[name])
        self.sample = sample(problem)
        self.shapes = {"": shape, **{name: spec.shape for name, spec in specs.items()}}
        if self.sample is not None:
            inputs = {name: _sampled(array, self.sample) for name, array in inputs.items()}
        self.right = right(sampled(problem, self.sample), inputs)

    def judge_files(self, path: str, tolerance: float) -> dict[str, dict[str, Any]]:
        """Return the errors of the results that a backend has written. Raises ValueError for a wrong size."""
        errors = {}
        for name, exact in self.right.items():
            try:
                result = exact.read(f"{path}.{name}" if name else path, self.shapes[name])
                if self.sample is not None:
                    result = _sampled(result, self.sample)
                errors[name] = exact.judge(result, tolerance)
                if self.sample is not None:
                    worst = errors[name]["worst"]
                    places = self.sample.of(self.shapes[name])
                    errors[name]["worst"] = [
                        places[at][index] if at < len(places) and places[at] else index
                        for at, index in enumerate(worst)
                    ]
            except (OSError, ValueError) as error:
                title = f"the gradient of {name}" if name else "the result"
                why = error if isinstance(error, ValueError) else "is missing"
                raise ValueError(f"{title} {why}") from None
        return errors


def _sampled(array: Any, sample: Sample) -> Any:
    """Return the batches and heads of an array that are compared."""
    for axis, places in enumerate(sample.of(array.shape)):
        if places:
            array = array.take(places, axis)
    return array


def _pages(problem: AttentionProblem, random: Any) -> Any:
    """Return a random page table without shared pages; entries after a sequence's last page are 0."""
    np = numpy()
    assert problem.page_table is not None
    count, _, size, _ = problem.key.shape
    table = np.zeros(problem.page_table.shape, "int32")
    used = [-(-keys // size) if size else 0 for keys in problem.key_lengths]
    order = np.resize(random.permutation(count), sum(used))
    for row, pages in zip(table, used, strict=True):
        row[:pages], order = order[:pages], order[pages:]
    return table


def _by_falling_stride(spec: TensorSpec) -> list[int]:
    """Return the dimensions of a tensor in memory order."""
    return sorted(range(len(spec.shape)), key=lambda at: -spec.strides[at])


def _numbers(spec: TensorSpec, random: Any) -> Any:
    """Return standard normal numbers, as `interchange.as_array` would return them."""
    kind = "float64" if spec.dtype == "float64" else "float32"
    return interchange.narrowed(random.standard_normal(spec.shape, kind), spec.dtype)


def responder() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what answers requests."""
    values: list[Values] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "judge":
            return values[0].judge_files(request["path"], request["tolerance"])
        values.clear()  # releases the memory of the previous one
        problem = msgspec.convert(request["problem"], AttentionProblem)
        current = Values(problem, request["folder"], request["seed"])
        values.append(current)
        return {
            "files": current.files,
            "grad_out": msgspec.to_builtins(current.grad_out),
            "errors": {name: exact.reference_error for name, exact in current.right.items()},
            "sample": sample_text(problem, current.sample),
        }

    return answer
