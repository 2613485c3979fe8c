"""Attention by cuDNN on the devices of this process: plans are made once, and run on the caller's stream."""

import threading
from functools import lru_cache
from typing import Any

import msgspec

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients
from mlbackends_kernels.cuda.attention_graph import Graph, attention_graph
from mlbackends_kernels.cuda.copies import packed
from mlbackends_kernels.cuda.device_array import empty, on_one_stream, output_like
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.errors import our_errors

_WORKSPACE_TYPE, _WORKSPACE_BYTES = "float32", 4
_INPUTS = ("query", "key", "value", "mask")
_OF_ROWS = ("output", "logsumexp", "grad_out")
_of_thread = threading.local()


def check(problem: AttentionProblem) -> None:
    """Make the plans that a problem needs on its device. Raises `attention_graph.Refused`."""
    with on_device(problem.device.index):
        for backward in (False, True)[: 1 + problem.wants_gradient]:
            _plan(problem, problem.device.index, backward)


def forward(problem: AttentionProblem, *inputs: Any) -> tuple[Any, Any]:
    """Return attention and the log-sum-exp of its rows. inputs: query, key, value, mask."""
    query, shape = inputs[0], problem.output_shape
    out = output_like(query, shape, problem.dtype)
    logsumexp = output_like(query, shape[:-1], "float32")
    results = {"output": out, "logsumexp": logsumexp}
    _run(problem, {**dict(zip(_INPUTS, inputs, strict=False)), **results}, backward=False)
    return out, logsumexp


def backward(problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
    """Return the gradients. tensors: query, key, value, mask, and what `forward` returned for them."""
    specs = problem.query, problem.key, problem.value
    gradients = [
        output_like(given, spec.shape, spec.dtype)
        for given, spec in zip(tensors, specs, strict=False)
    ]
    results = zip(("grad_query", "grad_key", "grad_value"), gradients, strict=True)
    named = dict(zip((*_INPUTS, "output", "logsumexp"), tensors, strict=True))
    named = on_one_stream({**named, "grad_out": grad_out, **dict(results)})
    for name in _OF_ROWS:  # the graph has them packed
        named[name] = packed(named[name])
    _run(problem, named, backward=True)
    return Gradients(*gradients)


def _run(problem: AttentionProblem, tensors: dict[str, Any], *, backward: bool) -> None:
    """Queue a plan on the stream of the query."""
    arrays = on_one_stream(tensors)
    first = arrays["query"]
    with on_device(first.device), our_errors("cuDNN's attention"):
        graph = _plan(problem, first.device, backward)
        handle = _handle(first.device, first.stream)
        size = -(-graph.graph.get_workspace_size() // _WORKSPACE_BYTES)
        workspace = empty((max(1, size),), _WORKSPACE_TYPE, first.device, first.stream)
        given = {tensor: arrays[name] for name, tensor in graph.tensors.items()}
        graph.graph.execute(given, workspace, handle=handle)


def _plan(problem: AttentionProblem, device: int, backward: bool) -> Graph:
    """Return the plan of this thread: a handle is one thread's at a time."""
    if not hasattr(_of_thread, "made"):
        _of_thread.made = lru_cache(maxsize=64)(_made)
    plan: Graph = _of_thread.made(msgspec.json.encode(problem), device, backward)
    return plan


def _made(problem: bytes, device: int, backward: bool) -> Graph:
    decoded = msgspec.json.decode(problem, type=AttentionProblem)
    return attention_graph(decoded, backward=backward, handle=_handle(device))


def _handle(device: int, stream: int | None = None) -> Any:
    """Return this thread's handle of a device, the current one, for work on a stream."""
    import cudnn  # type: ignore[import-not-found,unused-ignore]

    handles: dict[int, Any] = _of_thread.__dict__.setdefault("handles", {})
    if device not in handles:
        handles[device] = cudnn.create_handle()
    if stream is not None:
        cudnn.set_stream(handle=handles[device], stream=stream)
    return handles[device]
