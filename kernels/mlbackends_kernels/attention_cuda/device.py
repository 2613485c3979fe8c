"""Launches of attention on a device, on the stream of the caller's tensors."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients, Prepared
from mlbackends.switches import store
from mlbackends_kernels.attention_cuda import launches
from mlbackends_kernels.attention_cuda.launches import Call, Launch, Tile
from mlbackends_kernels.cuda.compiling import machine_code
from mlbackends_kernels.cuda.device_array import DeviceArray, on_one_stream
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.launching import Kernel, PreparedLaunches
from mlbackends_kernels.cuda.prepared_calls import PreparedCall, Room, form_of, watched

SOURCE = Path(__file__).with_name("attention.cu")
_NAMES = ("query", "key", "value", "mask", "out", "logsumexp", "grad_out")
_MOST_FORMS = 8


def attend(problem: AttentionProblem, *tensors: Any, logsumexp: bool) -> tuple[Any, Any]:
    """Return attention, and each row's logarithm if wanted: float32, beside the query.

    tensors: query, key, value and mask.
    """
    arrays = _arrays(tensors)
    out, *rest = _queued(_forward(problem, arrays, logsumexp, _precision()), tensors[0], arrays)
    return out, rest[0] if rest else None


def differentiate(problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
    """Return the gradients of query, key and value. tensors: they, the mask, out and logsumexp."""
    arrays = _arrays((*tensors, grad_out))
    return Gradients(*_queued(_backward(problem, arrays, _precision()), tensors[0], arrays))


def prepare_forward(problem: AttentionProblem, *example: Any) -> Prepared | None:
    """Return what computes calls of one form; see `AttentionBackend.prepared`."""
    *inputs, _, logsumexp = example
    is_watched = watched(inputs[0])
    if is_watched is None:
        return None
    wants_both = logsumexp is not None
    prepared = _forward(problem, _arrays(inputs), wants_both, _precision())

    def call(query: Any, key: Any, value: Any, mask: Any, _: Any) -> Any:
        if is_watched(query, key, value, mask):
            return None
        given = (query, key, value) if mask is None else (query, key, value, mask)
        found = prepared(*given)
        return found if found is None or wants_both else found[0]

    return call


def prepare_backward(problem: AttentionProblem, *example: Any) -> Prepared | None:
    """Return what computes gradients of calls of one form; see `AttentionBackend.prepared_backward`."""
    is_watched = watched(example[0])
    if is_watched is None:
        return None
    precision, prepared = _precision(), dict[Any, PreparedCall]()
    out, logsumexp = map(form_of, example[-2:])

    def call(grad_out: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any) -> Any:
        results = (*rest[:2], grad_out)
        if is_watched(query, key, value, mask) or is_watched(*results, None):
            return None
        tensors = (query, key, value, mask, *results)
        forms = tuple(map(form_of, results))
        if forms not in prepared:
            same = zip(forms, (out, logsumexp, out), strict=True)
            if len(prepared) >= _MOST_FORMS or any(
                (one[0], *one[2:]) != (other[0], *other[2:]) for one, other in same
            ):
                return None
            prepared[forms] = _backward(problem, _arrays(tensors), precision)
        found = prepared[forms](*(each for each in tensors if each is not None))
        return None if found is None else Gradients(*found)

    return call


def _arrays(tensors: Sequence[Any]) -> dict[str, DeviceArray]:
    """Return what is there of query, key, value, mask, out, logsumexp and grad_out by name."""
    return on_one_stream(dict(zip(_NAMES, tensors, strict=False)))


def _queued(call: PreparedCall, like: Any, arrays: Mapping[str, DeviceArray]) -> list[Any]:
    return call.queue(like, arrays["query"].stream, [each.pointer for each in arrays.values()])


def _precision() -> str:
    return str(store.read("cuda.matmul.fp32_precision"))


def _forward(
    problem: AttentionProblem, arrays: dict[str, DeviceArray], logsumexp: bool, precision: str
) -> PreparedCall:
    results: dict[str, Room] = {"out": (problem.output_shape, problem.dtype)}
    if logsumexp:
        results["logsumexp"] = problem.output_shape[:-1], "float32"
    made = launches.forward(problem, arrays | _unplaced(results), precision)
    return _prepared(problem, made, arrays, results, {})


def _backward(
    problem: AttentionProblem, arrays: dict[str, DeviceArray], precision: str
) -> PreparedCall:
    wanted = {name: arrays[name] for name in ("query", "key", "value")}
    results: dict[str, Room] = {
        f"grad_{name}": (each.shape, problem.dtype) for name, each in wanted.items()
    }
    scratch: dict[str, Room] = {"summary": ((*problem.output_shape[:-1], 4), "float32")}
    made = launches.backward(problem, arrays | _unplaced(results | scratch), precision)
    return _prepared(problem, made, arrays, results, scratch)


def _unplaced(rooms: Mapping[str, Room]) -> dict[str, DeviceArray]:
    return {
        name: DeviceArray(0, shape, None, dtype, 0, None) for name, (shape, dtype) in rooms.items()
    }


def _prepared(
    problem: AttentionProblem,
    made: Sequence[Launch],
    arrays: Mapping[str, DeviceArray],
    results: Mapping[str, Room],
    scratch: Mapping[str, Room],
) -> PreparedCall:
    assert problem.capability is not None
    device, call = arrays["query"].device, made[0].call
    with on_device(device):
        kernels = [
            (_kernel(each.function, each.tile, problem.capability), (each.grid, 1, 1))
            for each in made
            if each.grid
        ]
        offsets = [getattr(Call, name).offset for name in (*arrays, *results, *scratch)]
        queue = PreparedLaunches(kernels, device, call, offsets)
    aligned = [place for place, name in enumerate(arrays) if getattr(call, name).fast]
    return PreparedCall(queue, device, tuple(results.values()), tuple(scratch.values()), aligned)


@cache
def _kernel(function: str, tile: Tile, capability: tuple[int, int]) -> Kernel:
    block, shared = (32 * tile.warps, 1, 1), tile.shared_bytes(function)
    cubin = machine_code(SOURCE, capability, *launches.definitions(function, tile))
    return Kernel(cubin, f"attention_{function}", block, shared)
