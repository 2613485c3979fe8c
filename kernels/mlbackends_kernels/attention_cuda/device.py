"""Launches of attention on a device, on the stream of the caller's tensors."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.switches import store
from mlbackends_kernels.attention_cuda import launches
from mlbackends_kernels.attention_cuda.compiling import ENTRY, machine_code
from mlbackends_kernels.attention_cuda.launches import Launch, Tile
from mlbackends_kernels.cuda.device_array import DeviceArray, as_device_array, output_like
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.launching import Kernel


def attend(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, *, logsumexp: bool
) -> tuple[Any, Any]:
    """Return attention, and each row's logarithm if wanted: float32, beside the query."""
    names = ("query", "key", "value", "mask")
    first = as_device_array(query)
    given = zip(names, (first, key, value, mask), strict=True)
    operands = {
        name: as_device_array(tensor, first.stream) for name, tensor in given if tensor is not None
    }
    out = output_like(query, problem.output_shape, problem.dtype)
    operands["out"] = as_device_array(out, first.stream)
    logarithms = None
    if logsumexp:
        logarithms = output_like(query, problem.output_shape[:-1], "float32")
        operands["logsumexp"] = as_device_array(logarithms, first.stream)
    run(problem, launches.forward(problem, operands, precision()), first)
    return out, logarithms


def precision() -> str:
    """Return what `cuda.matmul.fp32_precision` says: "ieee" for products of float32 in full."""
    return str(store.read("cuda.matmul.fp32_precision"))


def run(problem: AttentionProblem, what: Sequence[Launch], first: DeviceArray) -> None:
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
    return Kernel(machine_code(function, tile, capability), ENTRY.decode(), block, shared)
