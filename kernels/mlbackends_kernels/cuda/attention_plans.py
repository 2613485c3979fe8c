"""Attention by cuDNN on the devices of this process: plans are made once, and run on the caller's stream."""

import threading
from functools import lru_cache
from typing import Any

import msgspec

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.cuda.attention_graph import Graph, attention_graph
from mlbackends_kernels.cuda.device_array import empty, on_one_stream, output_like
from mlbackends_kernels.cuda.devices import on_device, our_errors

_INPUTS = ("query", "key", "value", "mask")
_OF_BACKWARD = ("output", "logsumexp", "grad_out")
_of_thread = threading.local()

_Strides = tuple[tuple[str, tuple[int, ...]], ...]


def check(problem: AttentionProblem) -> None:
    """Make the plans that a problem needs on its device. Raises `attention_graph.Refused`."""
    with on_device(problem.device.index):
        for backward in (False, True)[: 1 + problem.wants_gradient]:
            _plan(problem, problem.device.index, backward)


def forward(problem: AttentionProblem, *inputs: Any) -> tuple[Any, Any]:
    """Return attention and the log-sum-exp of its rows. inputs: query, key, value, mask."""
    arrays = on_one_stream(dict(zip(_INPUTS, inputs, strict=False)))
    shape, stream = problem.output_shape, arrays["query"].stream
    out = output_like(inputs[0], shape, problem.dtype, stream)
    logsumexp = output_like(inputs[0], shape[:-1], "float32", stream)
    _run(problem, {**arrays, "output": out, "logsumexp": logsumexp}, backward=False)
    return out, logsumexp


def backward(problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
    """Return the gradients. tensors: query, key, value, mask, and what `forward` returned for them."""
    named = dict(zip((*_INPUTS, "output", "logsumexp"), tensors, strict=True))
    arrays: dict[str, Any] = {**on_one_stream({**named, "grad_out": grad_out})}
    stream = arrays["query"].stream
    gradients = {
        name: output_like(tensors[0], spec.shape, spec.dtype, stream)
        for name, spec in (
            ("query", problem.query), ("key", problem.key), ("value", problem.value),
        )
    }  # fmt: skip
    results = {f"grad_{name}": gradient for name, gradient in gradients.items()}
    _run(problem, {**arrays, **results}, backward=True)
    return Gradients(**gradients)


def _run(problem: AttentionProblem, tensors: dict[str, Any], *, backward: bool) -> None:
    """Queue a plan on the stream of the query."""
    arrays = on_one_stream(tensors)
    first = arrays["query"]
    strides: _Strides = ()
    if backward:
        strides = tuple((name, (*arrays[name].strides, 1)[:4]) for name in _OF_BACKWARD)
    with on_device(first.device), our_errors("cuDNN's attention"):
        graph = _plan(problem, first.device, backward, strides)
        handle = _handle(first.device, first.stream)
        size = max(1, graph.graph.get_workspace_size())
        workspace = empty((-(-size // 4),), "float32", first.device, first.stream)
        operands = {tensor: arrays[name] for name, tensor in graph.tensors.items()}
        graph.graph.execute(operands, workspace, handle=handle)


def _plan(problem: AttentionProblem, device: int, backward: bool, strides: _Strides = ()) -> Graph:
    """Return the plan of this thread: only one thread at a time may use a handle."""
    if not hasattr(_of_thread, "made"):
        _of_thread.made = lru_cache(maxsize=64)(_made)
    plan: Graph = _of_thread.made(msgspec.json.encode(problem), device, backward, strides)
    return plan


def _made(problem: bytes, device: int, backward: bool, strides: _Strides) -> Graph:
    decoded = msgspec.json.decode(problem, type=AttentionProblem)
    return attention_graph(decoded, backward=backward, handle=_handle(device), strides=dict(strides))


def _handle(device: int, stream: int | None = None) -> Any:
    """Return this thread's handle of a device, the current one, for work on a stream."""
    import cudnn  # type: ignore[import-not-found,unused-ignore]

    handles: dict[int, Any] = _of_thread.__dict__.setdefault("handles", {})
    if device not in handles:
        handles[device] = cudnn.create_handle()
    if stream is not None:
        cudnn.set_stream(handle=handles[device], stream=stream)
    return handles[device]
