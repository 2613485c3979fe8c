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
_INPUTS = ("query", "key", "value")


class Ours(serving.Prepared):
    """One backend and one problem: its forward pass, or its backward pass where a gradient is required."""

    def __init__(self, backend: AttentionBackend, request: dict[str, Any]) -> None:
        problem = msgspec.convert(request["problem"], AttentionProblem)
        files = request["files"]
        self.backend, self.problem, self.details = backend, problem, backend.details()
        self.tensors = [_read(files[name], getattr(problem, name)) for name in _INPUTS]
        self.tensors.append(_read(files["mask"], problem.mask) if problem.mask else None)
        self.output_bytes = prod(problem.output_shape) * ITEM_BYTES[problem.dtype]
        self.grad_out: Any = None
        self.results: tuple[Any, Any] = (None, None)
        if problem.wants_gradient:
            spec = msgspec.convert(request["grad_out"], TensorSpec)
            self.grad_out = _read(files["grad_out"], spec)
            self.output_bytes = gradient_bytes(problem)

    def warm(self) -> None:
        """Compute a problem of a few rows, without a mask."""
        specs = {name: getattr(self.problem, name) for name in _INPUTS}
        shapes = {
            name: (*each.shape[:-2], min(each.shape[-2], _SMALL), each.shape[-1])
            for name, each in specs.items()
        }
        small = replace(
            self.problem,
            mask=None,
            is_causal=False,
            lower_right=False,
            **{name: replace(each, shape=shapes[name]) for name, each in specs.items()},
        )
        if self.backend.unsupported_reasons(small):
            return
        inputs = [each[..., :_SMALL, :] for each in self.tensors[:3]]
        if self.grad_out is None:
            self.backend.run(small, *inputs)
            return
        results = self.backend.run_with_logsumexp(small, *inputs)
        self.backend.run_backward(small, self.grad_out[..., :_SMALL, :], *inputs, None, *results)

    def before(self) -> None:
        if self.grad_out is not None:
            self.results = self.backend.run_with_logsumexp(self.problem, *self.tensors)

    def call(self) -> Any:
        if self.grad_out is None:
            return self.backend.run(self.problem, *self.tensors)
        return self.backend.run_backward(self.problem, self.grad_out, *self.tensors, *self.results)

    def save(self, result: Any, path: str) -> None:
        gradients = {} if self.grad_out is None else result._asdict()
        files = {path: self.results[0] if gradients else result}
        files |= {f"{path}.{name}": each for name, each in gradients.items() if each is not None}
        for file, array in files.items():
            numpy().ascontiguousarray(array).tofile(file)


def _read(path: str, spec: TensorSpec) -> Any:
    """Return the array of a file in its layout. Raises Refused for bfloat16 where ml-dtypes is missing."""
    np = numpy()
    if spec.dtype == "bfloat16":
        try:
            import ml_dtypes
        except ModuleNotFoundError:
            message = "arrays of bfloat16 need ml-dtypes, which is not installed"
            raise serving.Refused(message) from None

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
    return serving.answering(lambda request: Ours(backend, request))
