"""One of our own attention backends in a process of its own, for `sdpa check`."""

from math import prod
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.model.problem import ITEM_BYTES, AttentionProblem, TensorSpec
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.verify.problem_size import gradient_bytes
from mlbackends_kernels.checking import serving
from mlbackends_kernels.tensors.arithmetic import numpy

_SMALL = 8


class Ours(serving.Prepared):
    """One backend and one problem."""

    def __init__(
        self, backend: AttentionBackend, problem: AttentionProblem, files: dict[str, str]
    ) -> None:
        self.backend, self.problem = backend, problem
        found = {name: _read(files[name], getattr(problem, name)) for name in _names(problem)}
        self.tensors = found["query"], found["key"], found["value"], found.get("mask")
        self.output_bytes = _bytes(problem)
        self.told = backend.told()

    def warm(self) -> None:
        """Compute a problem of a few rows."""
        few = _few(self.problem)
        if not self.backend.unsupported_reasons(few):
            query, key, value, _ = self.tensors
            self.backend.run(few, _rows(query), _rows(key), _rows(value))

    def call(self) -> Any:
        """Compute once."""
        return self.backend.run(self.problem, *self.tensors)

    def save(self, result: Any, path: str) -> None:
        """Write the elements row by row."""
        numpy().ascontiguousarray(result).tofile(path)


class OursBackward(Ours):
    """One backend and the backward pass of one problem."""

    def __init__(
        self,
        backend: AttentionBackend,
        problem: AttentionProblem,
        files: dict[str, str],
        grad_out: TensorSpec,
    ) -> None:
        super().__init__(backend, problem, files)
        self.grad_out = _read(files["grad_out"], grad_out)
        self.output_bytes = gradient_bytes(problem)
        self.out, self.logsumexp = None, None

    def warm(self) -> None:
        """Compute the gradients of a problem of a few rows."""
        few = _few(self.problem)
        if not self.backend.unsupported_reasons(few):
            query, key, value, _ = self.tensors
            rows = _rows(query), _rows(key), _rows(value), None
            out, logsumexp = self.backend.run_with_logsumexp(few, *rows)
            self.backend.run_backward(few, _rows(self.grad_out), *rows, out, logsumexp)

    def before(self) -> None:
        """Compute the result."""
        self.out, self.logsumexp = self.backend.run_with_logsumexp(self.problem, *self.tensors)

    def call(self) -> Any:
        """Compute the gradients once."""
        return self.backend.run_backward(
            self.problem, self.grad_out, *self.tensors, self.out, self.logsumexp
        )

    def save(self, result: Any, path: str) -> None:
        """Write the result, and each gradient."""
        super().save(self.out, path)
        for name, gradient in zip(result._fields, result, strict=True):
            if gradient is not None:
                super().save(gradient, f"{path}.{name}")


def _few(problem: AttentionProblem) -> AttentionProblem:
    """Return a problem of the same kind with few rows, and no mask."""
    return replace(
        problem,
        query=_cut(problem.query),
        key=_cut(problem.key),
        value=_cut(problem.value),
        mask=None,
        is_causal=False,
        lower_right=False,
    )


def _names(problem: AttentionProblem) -> tuple[str, ...]:
    return ("query", "key", "value", "mask")[: 4 if problem.mask else 3]


def _bytes(problem: AttentionProblem) -> int:
    return prod(problem.output_shape) * ITEM_BYTES[problem.dtype]


def _element(dtype: str) -> Any:
    """Return numpy's name of an element type. Raises ModuleNotFoundError where it is another package's."""
    if dtype == "bfloat16":
        import ml_dtypes

        return numpy().dtype(ml_dtypes.bfloat16)
    return numpy().dtype(dtype)


def _read(path: str, spec: TensorSpec) -> Any:
    """Return the array of a file, lying in memory as the record says."""
    np = numpy()
    element = _element(spec.dtype)
    flat = np.fromfile(path, element)
    strides = [stride * element.itemsize for stride in spec.strides]
    if not flat.size:
        return flat.reshape(spec.shape)
    return np.lib.stride_tricks.as_strided(flat, spec.shape, strides)


def _cut(spec: TensorSpec) -> TensorSpec:
    shape = (*spec.shape[:-2], min(spec.shape[-2], _SMALL), spec.shape[-1])
    return replace(spec, shape=shape)


def _rows(array: Any) -> Any:
    return array[..., :_SMALL, :]


def main(name: str) -> None:
    """Answer requests for one backend until standard input ends."""
    from mlbackends.sdpa.dispatch import backends

    (backend,) = [each for each in backends() if each.name == name]

    def prepare(request: dict[str, Any]) -> Ours:
        problem = msgspec.convert(request["problem"], AttentionProblem)
        if problem.wants_gradient:
            grad_out = msgspec.convert(request["grad_out"], TensorSpec)
            return OursBackward(backend, problem, request["files"], grad_out)
        return Ours(backend, problem, request["files"])

    serving.serve(prepare)
