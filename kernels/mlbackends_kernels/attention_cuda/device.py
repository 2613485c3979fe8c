"""Launches of attention on a device, on the stream of the caller's tensors."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends.switches import store
from mlbackends_kernels.attention_cuda import launches
from mlbackends_kernels.attention_cuda.compiling import machine_code
from mlbackends_kernels.attention_cuda.launches import Launch, Tile
from mlbackends_kernels.cuda.device_array import DeviceArray, on_one_stream, output_like
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.launching import Kernel


def attend(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, *, logsumexp: bool
) -> tuple[Any, Any]:
    """Return attention, and each row's logarithm if wanted: float32, beside the query."""
    out = output_like(query, problem.output_shape, problem.dtype)
    logarithms = output_like(query, out.shape[:-1], "float32") if logsumexp else None
    given = {"query": query, "key": key, "value": value, "mask": mask}
    arrays = on_one_stream({**given, "out": out, "logsumexp": logarithms})
    _run(problem, launches.forward(problem, arrays, _precision()), arrays["query"])
    return out, logarithms


def differentiate(problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
    """Return the gradients of query, key and value. tensors: they, the mask, out and logsumexp."""
    named = dict(zip(("query", "key", "value", "mask", "out", "logsumexp"), tensors, strict=True))
    found = [output_like(each, tuple(each.shape), problem.dtype) for each in tensors[:3]]
    gradients = zip(("grad_query", "grad_key", "grad_value"), found, strict=True)
    summary = output_like(tensors[0], (*problem.output_shape[:-1], 4), "float32")
    arrays = on_one_stream({**named, "grad_out": grad_out, "summary": summary, **dict(gradients)})
    _run(problem, launches.backward(problem, arrays, _precision()), arrays["query"])
    return Gradients(*found)


def _precision() -> str:
    return str(store.read("cuda.matmul.fp32_precision"))


def _run(problem: AttentionProblem, what: Sequence[Launch], first: DeviceArray) -> None:
    """Queue launches on the device and stream of an array, one after the other."""
    assert problem.capability is not None
    with on_device(first.device):
        for launch in what:
            if launch.grid:
                kernel = _kernel(launch.function, launch.tile, problem.capability)
                kernel(first.device, first.stream, (launch.grid, 1, 1), launch.call)


@cache
def _kernel(function: str, tile: Tile, capability: tuple[int, int]) -> Kernel:
    block, shared = (32 * tile.warps, 1, 1), tile.shared_bytes(function)
    cubin = machine_code(function, tile, capability)
    return Kernel(cubin, f"attention_{function}", block, shared)
