"""One of our attention backends in a separate process, for `sdpa check`."""

from math import prod
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.base.errors import NoBackend
from mlbackends.base.installed import install_command
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.dispatch import backends
from mlbackends.sdpa.verify.problem_size import gradient_bytes
from mlbackends_kernels.checking import serving
from mlbackends_kernels.checking.device_timing import OnDevice
from mlbackends_kernels.tensors.arithmetic import numpy
from mlbackends_kernels.tensors.interchange import as_array

_SMALL = 8
_INPUTS = ("query", "key", "value")


class Ours(serving.Prepared):
    """One backend and one problem: the forward pass, or the backward pass if a gradient is required."""

    def __init__(self, backend: AttentionBackend, request: dict[str, Any]) -> None:
        problem = msgspec.convert(request["problem"], AttentionProblem)
        files = request["files"]
        self.backend, self.problem, self.details = backend, problem, backend.details()
        self._read = _read
        if problem.platform == "cuda":
            index = problem.device.index
            self._read = lambda path, spec: _on_device(path, spec, index)
            self.measure = device_measure(index)
        self.tensors = [self._read(files[name], getattr(problem, name)) for name in _INPUTS]
        self.tensors.append(self._read(files["mask"], problem.mask) if problem.mask else None)
        names = ("sinks", "alibi_slopes", "page_table")
        self.more = {name: self._read(files[name], getattr(problem, name)) for name in names if name in files}
        self.output_bytes = prod(problem.output_shape) * ITEM_BYTES[problem.dtype]
        self.grad_out: Any = None
        self.results: tuple[Any, Any] = (None, None)
        if problem.wants_gradient:
            spec = msgspec.convert(request["grad_out"], TensorSpec)
            self.grad_out = self._read(files["grad_out"], spec)
            self.output_bytes = gradient_bytes(problem)

    def warm(self) -> None:
        """Compute a few rows without a mask; one sequence where keys are paged."""
        alone = self.problem.page_table is not None
        specs = {name: getattr(self.problem, name) for name in _INPUTS}
        small = replace(
            self.problem,
            mask=None,
            is_causal=False,
            lower_right=False,
            query_lengths=(),
            key_lengths=(),
            page_table=None,
            **{name: replace(spec, shape=_few_of(spec.shape, alone)) for name, spec in specs.items()},
        )
        if self.backend.unsupported_reasons(small):
            return
        inputs = [_few(tensor, alone) for tensor in self.tensors[:3]]
        more = {name: tensor for name, tensor in self.more.items() if name != "page_table"}
        if self.grad_out is None:
            self.backend.run(small, *inputs, **more)
            return
        results = self.backend.run_with_logsumexp(small, *inputs, **more)
        self.backend.run_backward(small, _few(self.grad_out, alone), *inputs, None, *results, **more)

    def before(self) -> None:
        if self.grad_out is not None:
            self.results = self.backend.run_with_logsumexp(self.problem, *self.tensors, **self.more)

    def call(self) -> Any:
        try:
            if self.grad_out is None:
                return self.backend.run(self.problem, *self.tensors, **self.more)
            tensors = (*self.tensors, *self.results)
            return self.backend.run_backward(self.problem, self.grad_out, *tensors, **self.more)
        except NoBackend as error:  # refused by its library
            raise serving.Refused(str(error)) from None

    def save(self, result: Any, path: str) -> None:
        gradients = {} if self.grad_out is None else result._asdict()
        files = {path: self.results[0] if gradients else result}
        files |= {f"{path}.{name}": array for name, array in gradients.items() if array is not None}
        for file, array in files.items():
            array = as_array(array)
            numpy().ascontiguousarray(array).tofile(file)


def _few(tensor: Any, alone: bool) -> Any:
    """Return the first rows of a tensor, in memory or on a device. alone: of its first batch only."""
    shape = _few_of(tuple(tensor.shape), alone)
    if hasattr(tensor, "viewed"):
        return tensor.viewed(shape, tensor.strides)
    return tensor[tuple(map(slice, shape))]


def _few_of(shape: tuple[int, ...], alone: bool) -> tuple[int, ...]:
    *leading, rows, width = shape
    return (*((1, *leading[1:]) if alone else leading), min(rows, _SMALL), width)


class _DeviceMemory:
    """The memory of a device's pool, from which our arrays come."""

    by = "the high-water mark of the device's memory pool"

    def __init__(self, index: int) -> None:
        from mlbackends_kernels.cuda import devices

        self._call, self._driver = devices.call, devices.driver()
        self._pool = devices.core_device(index).memory_resource

    def reset(self) -> None:
        mark = self._driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH
        self._call("cuMemPoolSetAttribute", self._pool.handle, mark, self._driver.cuuint64_t(0))

    def held(self) -> int:
        return int(self._pool.attributes.used_mem_current)

    def peak(self) -> int:
        return int(self._pool.attributes.used_mem_high)


def device_measure(index: int) -> OnDevice:
    """Make a device current in this thread, and return what measures calls on it."""
    from mlbackends_kernels.cuda.devices import core_device

    device = core_device(index)
    device.set_current()
    has_pool = hasattr(device.memory_resource, "attributes")
    return OnDevice(_DeviceMemory(index) if has_pool else None)


def _on_device(path: str, spec: TensorSpec, index: int) -> Any:
    """Return the array of a file on a device, in its layout."""
    from mlbackends_kernels.cuda.device_array import to_device

    element = "float16" if spec.dtype == "bfloat16" else spec.dtype  # which NumPy lacks
    flat = to_device(numpy().fromfile(path, element), index)
    flat = flat.as_type("bfloat16") if spec.dtype == "bfloat16" else flat
    return flat.viewed(spec.shape, spec.strides)


def _read(path: str, spec: TensorSpec) -> Any:
    """Return the array of a file in its layout. Raises Refused for bfloat16 without ml-dtypes."""
    np = numpy()
    if spec.dtype == "bfloat16":
        try:
            import ml_dtypes
        except ModuleNotFoundError:
            message = "arrays of bfloat16 need ml-dtypes, which is not installed"
            raise serving.Refused(message, install_command("kernels")) from None

        element = np.dtype(ml_dtypes.bfloat16)
    else:
        element = np.dtype(spec.dtype)
    flat = np.fromfile(path, element)
    if not flat.size:
        return flat.reshape(spec.shape)
    strides = [stride * element.itemsize for stride in spec.strides]
    return np.lib.stride_tricks.as_strided(flat, spec.shape, strides)


def responder(name: str) -> serving.Responder:
    """Return what answers requests for one backend."""
    (backend,) = [candidate for candidate in backends() if candidate.name == name]
    return serving.responder(lambda request: Ours(backend, request))
