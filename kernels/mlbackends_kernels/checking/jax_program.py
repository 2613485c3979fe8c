"""JAX's attention in a separate process, for `sdpa check --peers`.

The interpreter of its environment runs this file, which imports jax, numpy and the standard library.
Source: the docstring of jax.nn.dot_product_attention (0.10).
"""

from __future__ import annotations

import os
import runpy
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise jax allocates most of the memory

import jax  # type: ignore[import-not-found,unused-ignore]
import numpy as np

_FOLDER = os.path.dirname(os.path.abspath(__file__))
serving: Any = SimpleNamespace(**runpy.run_path(os.path.join(_FOLDER, "serving.py")))
_INPUTS = ("query", "key", "value")
_TIMED_BY = "the host's clock, including launch and wait, since jax has no events; L2 is not flushed"


class OnJax(serving.OnHost):  # type: ignore[misc]
    """Measures calls that wait for the device, by the host's clock and the allocator's counters."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def _counts(self) -> dict[str, int]:
        return self._device.memory_stats() or {}

    def memory_before(self) -> Any:
        counts = self._counts()
        return counts.get("bytes_in_use"), counts.get("peak_bytes_in_use")

    def memory_after(self, before: Any, output_bytes: int) -> dict[str, Any]:
        current, highest = before
        peak = self._counts().get("peak_bytes_in_use")
        if current is None or highest is None or peak is None or peak <= highest:
            return {}  # the peak cannot be reset, and an earlier one hides this one
        extra = max(0, peak - current - output_bytes)
        return {"extra_bytes": extra, "measured_by": "peak_bytes_in_use of jax's memory_stats"}

    def time(self, call: Any, duration: float, most: int) -> dict[str, Any]:
        times: dict[str, Any] = super().time(call, duration, most)
        return {**times, "timed_by": _TIMED_BY}


class Jax(serving.Prepared):  # type: ignore[misc]
    """One problem for dot_product_attention, by cuDNN for 16-bit elements and by XLA for others."""

    def __init__(self, request: dict[str, Any]) -> None:
        problem, files = request["problem"], request["files"]
        kind, index = problem["device"]["kind"], problem["device"]["index"]
        try:
            self.device = jax.devices("cpu" if kind == "cpu" else "cuda")[index]
        except (RuntimeError, IndexError) as error:
            raise serving.Refused(f"jax {jax.__version__} sees no such device: {error}") from None
        is_half = problem["query"]["dtype"] in ("float16", "bfloat16")
        self.implementation = "cudnn" if is_half and kind != "cpu" else "xla"
        self.details = {"version": jax.__version__, "implementation": self.implementation}
        self.measure = OnJax(self.device)
        self.tensors = [self._read(files[name], problem[name]) for name in _INPUTS]
        mask = problem.get("mask")
        options: dict[str, Any] = {"scale": problem["scale"], "is_causal": problem["is_causal"]}
        if mask:
            array = self._read(files["mask"], mask)
            array = array.reshape((1,) * (4 - array.ndim) + array.shape)
            options["mask" if mask["dtype"] == "bool" else "bias"] = array
        self.grad_out: Any = None
        self.residuals: Any = None

        def attend(query: Any, key: Any, value: Any) -> Any:
            # jax expects (B, L, H, E).
            by_rows = [tensor.swapaxes(1, 2) for tensor in (query, key, value)]
            result = jax.nn.dot_product_attention(*by_rows, implementation=self.implementation, **options)
            return result.swapaxes(1, 2)

        self.forward = jax.jit(attend)
        if any(problem[name]["requires_grad"] for name in _INPUTS):
            self.grad_out = self._read(files["grad_out"], request["grad_out"])
            self.forward = jax.jit(lambda *tensors: jax.vjp(attend, *tensors))
            self.backward = jax.jit(lambda pull, grad: pull(grad))
            self.output_bytes = sum(tensor.nbytes for tensor in self.tensors)
        else:
            leading, width = self.tensors[0].shape[:-1], self.tensors[2].shape[-1]
            self.output_bytes = int(np.prod((*leading, width))) * self.tensors[0].dtype.itemsize

    def _read(self, path: str, spec: dict[str, Any]) -> Any:
        dtype = jax.numpy.dtype(spec["dtype"])
        flat = np.fromfile(path, dtype)
        strides = [step * dtype.itemsize for step in spec["strides"]]
        array = np.lib.stride_tricks.as_strided(flat, spec["shape"], strides)
        return jax.device_put(np.ascontiguousarray(array), self.device)

    def warm(self) -> None:
        """Compile, which takes seconds that are not part of a call."""
        self.before()
        self.call()

    def before(self) -> None:
        if self.grad_out is not None:
            self.residuals = jax.block_until_ready(self._run(self.forward, *self.tensors))

    def call(self) -> Any:
        if self.grad_out is None:
            return self._run(self.forward, *self.tensors)
        return self._run(self.backward, self.residuals[1], self.grad_out)

    def _run(self, function: Any, *arguments: Any) -> Any:
        try:
            return jax.block_until_ready(function(*arguments))
        except (NotImplementedError, ValueError) as error:  # not supported by cuDNN
            raise serving.Refused(f"jax {jax.__version__}: {error}") from None

    def save(self, result: Any, path: str) -> None:
        files = {path: result}
        if self.grad_out is not None:
            files = {f"{path}.{name}": array for name, array in zip(_INPUTS, result)}  # noqa: B905
            files[path] = self.residuals[0]
        for name, array in files.items():
            np.ascontiguousarray(np.asarray(array)).tofile(name)


if __name__ == "__main__":
    serving.serve(Jax)
