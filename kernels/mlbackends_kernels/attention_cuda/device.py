"""Launches of attention on a device, on the stream of the caller's tensors."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends.switches import store
from mlbackends_kernels.attention_cuda import launches
from mlbackends_kernels.attention_cuda.launches import OF_MASK, Launch, Tile
from mlbackends_kernels.cuda.device_array import (
    DeviceArray,
    as_device_array,
    on_one_stream,
    output_like,
)
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.kernels import Kernel, compiled

SOURCE = Path(__file__).with_name("attention.cu")
MASK_SOURCE = SOURCE.with_name("mask.cu")
_INPUTS = ("query", "key", "value", "mask")


def attend(problem: AttentionProblem, *tensors: Any, logsumexp: bool, **more: Any) -> tuple[Any, Any]:
    """Return attention, and the log-sum-exp of each row as float32, or None if it is not wanted.

    tensors: query, key, value and mask. more: sinks, if there are any.
    """
    arrays = on_one_stream({**dict(zip(_INPUTS, tensors, strict=False)), **more})
    results = {"out": (problem.output_shape, problem.dtype)}
    if logsumexp:
        results["logsumexp"] = problem.output_shape[:-1], "float32"
    made = _with_results(arrays, tensors[0], results)
    _queue(problem, arrays, launches.forward(problem, arrays, _precision()))
    return made["out"], made.get("logsumexp")


def differentiate(problem: AttentionProblem, grad_out: Any, *tensors: Any, **more: Any) -> Gradients:
    """Return the gradients. tensors: query, key, value, mask, out and logsumexp; more: sinks."""
    named = dict(zip((*_INPUTS, "out", "logsumexp"), tensors, strict=False))
    arrays = on_one_stream({**named, "grad_out": grad_out, **more})
    optional = {"mask": problem.mask, "sinks": problem.sinks}
    wanted = [name for name, spec in optional.items() if spec is not None and spec.requires_grad]
    wanted = ["query", "key", "value", *wanted]
    results = {f"grad_{name}": (arrays[name].shape, arrays[name].dtype) for name in wanted}
    made = _with_results(arrays, tensors[0], results)
    _with_results(arrays, tensors[0], {"summary": ((*problem.output_shape[:-1], 4), "float32")})
    _queue(problem, arrays, launches.backward(problem, arrays, _precision()))
    return Gradients(**{name: made[f"grad_{name}"] for name in wanted})


def _with_results(
    arrays: dict[str, DeviceArray], like: Any, wanted: dict[str, tuple[tuple[int, ...], str]]
) -> dict[str, Any]:
    """Allocate results of the kind of a tensor, add them to the arrays, and return them by name."""
    stream = arrays["query"].stream
    made = {name: output_like(like, shape, dtype, stream) for name, (shape, dtype) in wanted.items()}
    arrays |= {name: as_device_array(result, stream) for name, result in made.items()}
    return made


def _queue(problem: AttentionProblem, arrays: dict[str, DeviceArray], made: Sequence[Launch]) -> None:
    """Queue launches on the device and the stream of the query."""
    assert problem.capability is not None
    index, stream = arrays["query"].device, arrays["query"].stream
    with on_device(index):
        for launch in made:
            if launch.grid:
                kernel = _kernel(launch.function, launch.tile, problem.capability)
                kernel(index, stream, launch.grid, launch.whole or launch.call)


def _precision() -> str:
    return str(store.read("cuda.matmul.fp32_precision"))


@cache
def _kernel(function: str, tile: Tile, capability: tuple[int, int]) -> Kernel:
    source = MASK_SOURCE if function == OF_MASK else SOURCE
    code = compiled(source, capability, launches.macros(function, tile))
    return Kernel(code, f"attention_{function}", 32 * tile.warps, tile.shared_bytes(function))
