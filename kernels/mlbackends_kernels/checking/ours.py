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
        query, key, value = (
            _read(files[name], getattr(problem, name)) for name in ("query", "key", "value")
        )
        mask = _read(files["mask"], problem.mask) if problem.mask else None
        self.tensors = query, key, value, mask
        self.output_bytes = prod(problem.output_shape) * ITEM_BYTES[problem.dtype]
        self.details = backend.details()

    def warm(self) -> None:
        """Compute a problem of a few rows, without a mask."""
        small = replace(
            self.problem,
            query=_first_rows(self.problem.query),
            key=_first_rows(self.problem.key),
            value=_first_rows(self.problem.value),
            mask=None,
            is_causal=False,
            lower_right=False,
        )
        if not self.backend.unsupported_reasons(small):
            self.run_small(small, *(each[..., :_SMALL, :] for each in self.tensors[:3]))

    def run_small(self, problem: AttentionProblem, query: Any, key: Any, value: Any) -> None:
        """Compute a problem of a few rows."""
        self.backend.run(problem, query, key, value)

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

    def run_small(self, problem: AttentionProblem, query: Any, key: Any, value: Any) -> None:
        """Compute the gradients of a problem of a few rows."""
        out, logsumexp = self.backend.run_with_logsumexp(problem, query, key, value)
        grad_out = self.grad_out[..., :_SMALL, :]
        self.backend.run_backward(problem, grad_out, query, key, value, None, out, logsumexp)

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


def _first_rows(spec: TensorSpec) -> TensorSpec:
    return replace(spec, shape=(*spec.shape[:-2], min(spec.shape[-2], _SMALL), spec.shape[-1]))


def _read(path: str, spec: TensorSpec) -> Any:
    """Return the array of a file in its layout. Raises ModuleNotFoundError for bfloat16 without ml_dtypes."""
    np = numpy()
    if spec.dtype == "bfloat16":
        import ml_dtypes

        element = np.dtype(ml_dtypes.bfloat16)
    else:
        element = np.dtype(spec.dtype)
    flat = np.fromfile(path, element)
    if not flat.size:
        return flat.reshape(spec.shape)
    strides = [stride * element.itemsize for stride in spec.strides]
    return np.lib.stride_tricks.as_strided(flat, spec.shape, strides)


def answering(name: str) -> serving.Answering:
    """Return what answers requests for one backend."""
    from mlbackends.sdpa.dispatch import backends

    (backend,) = [each for each in backends() if each.name == name]

    def prepare(request: dict[str, Any]) -> Ours:
        problem = msgspec.convert(request["problem"], AttentionProblem)
        if problem.wants_gradient:
            grad_out = msgspec.convert(request["grad_out"], TensorSpec)
            return OursBackward(backend, problem, request["files"], grad_out)
        return Ours(backend, problem, request["files"])

    return serving.answering(prepare)
