"""Launches of attention on a device, on the stream of the caller's tensors."""

import ctypes
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Gradients, Prepared
from mlbackends.switches import store
from mlbackends_kernels.attention_cuda import launches
from mlbackends_kernels.attention_cuda.launches import OF_MASK, Call, Launch, Tile
from mlbackends_kernels.cuda.compiling import machine_code
from mlbackends_kernels.cuda.device_array import DeviceArray, on_one_stream
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.launching import Kernel, PreparedLaunches
from mlbackends_kernels.cuda.prepared_calls import (
    BACKWARD,
    FORWARD,
    PreparedCall,
    Room,
    can_prepare,
    forms_of_results,
    results_like,
)

SOURCE = Path(__file__).with_name("attention.cu")
MASK_SOURCE = SOURCE.with_name("mask.cu")
_NAMES = ("query", "key", "value", "mask", "out", "logsumexp", "grad_out")
_MOST_FORMS = 8

Arrays = dict[str, DeviceArray]
Rooms = dict[str, Room]


class Queue(NamedTuple):
    """Kernels with their grids, in order, and the structure that is the argument of all.

    By the names of arrays: offsets, where their addresses stand in it; aligned, which must have addresses
    of whole 16 bytes.
    """

    kernels: list[tuple[Kernel, int]]
    argument: ctypes.Structure
    offsets: Mapping[str, int]
    aligned: Collection[str]


class DeviceAttention:
    """Attention and its gradients by kernels on a device. What is launched, subclasses tell."""

    def attend(
        self, problem: AttentionProblem, *tensors: Any, logsumexp: bool, **more: Any
    ) -> tuple[Any, Any]:
        """Return attention, and each row's logarithm if wanted: float32, beside the query.

        tensors: query, key, value and mask. more: sinks and page_table, where there are.
        """
        arrays = _arrays(tensors, more)
        call = self._forward(problem, arrays, logsumexp)
        out, *rest = _queued(call, tensors[0], arrays)
        return out, rest[0] if rest else None

    def differentiate(
        self, problem: AttentionProblem, grad_out: Any, *tensors: Any, **more: Any
    ) -> Gradients:
        """Return the gradients. tensors: query, key, value, mask, out and logsumexp; more: sinks."""
        arrays = _arrays((*tensors, grad_out), more)
        found = _queued(self._backward(problem, arrays), tensors[0], arrays)
        return Gradients(**dict(zip(_differentiated(problem), found, strict=True)))

    def prepare_forward(
        self, problem: AttentionProblem, *example: Any, **more: Any
    ) -> Prepared | None:
        """Return what computes calls of one form; see `AttentionBackend.prepared`."""
        *inputs, _, logsumexp = example
        if not can_prepare(inputs[0]):
            return None
        wants_both, arrays = logsumexp is not None, _arrays(inputs, more)
        take = itemgetter(*map(FORWARD.index, arrays))
        prepared = self._forward(problem, arrays, wants_both)

        def call(*tensors: Any) -> Any:
            found = prepared(take(tensors))
            return found if found is None or wants_both else found[0]

        return call

    def prepare_backward(
        self, problem: AttentionProblem, *example: Any, **more: Any
    ) -> Prepared | None:
        """Return what computes gradients of calls of a form; see `AttentionBackend.prepared_backward`."""
        if not can_prepare(example[0]):
            return None
        fits, names = results_like(*example[-2:]), _differentiated(problem)
        made: dict[Any, tuple[PreparedCall, itemgetter[Any]]] = {}

        def call(*tensors: Any) -> Gradients | None:
            forms = forms_of_results(tensors)
            if forms not in made:
                if len(made) >= _MOST_FORMS or not fits(forms):
                    return None
                named = dict(zip(BACKWARD, tensors, strict=False))
                arrays = _arrays(
                    [named[name] for name in _NAMES], {each: named[each] for each in more}
                )
                take = itemgetter(*map(BACKWARD.index, arrays))
                made[forms] = self._backward(problem, arrays), take
            prepared, take = made[forms]
            found = prepared(take(tensors))
            return None if found is None else Gradients(**dict(zip(names, found, strict=True)))

        return call

    def tables(self, problem: AttentionProblem, arrays: Arrays) -> Arrays:
        """Return what the forward passes read that all calls share. arrays: what they are given."""
        del problem, arrays
        return {}

    def forward_rooms(self, problem: AttentionProblem, arrays: Arrays) -> Rooms:
        """Return what the forward passes need beside their results. arrays: what they are given."""
        del problem, arrays
        return {}

    def forward_queues(self, problem: AttentionProblem, arrays: Arrays) -> list[Queue]:
        """Return the forward passes. arrays: as of `launches.forward`, and `forward_rooms`."""
        raise NotImplementedError

    def backward_queues(self, problem: AttentionProblem, arrays: Arrays) -> list[Queue]:
        """Return the passes of the gradients. arrays: as of `launches.backward`."""
        raise NotImplementedError

    def _forward(self, problem: AttentionProblem, arrays: Arrays, logsumexp: bool) -> PreparedCall:
        results: Rooms = {"out": (problem.output_shape, problem.dtype)}
        if logsumexp:
            results["logsumexp"] = problem.output_shape[:-1], "float32"
        with on_device(arrays["query"].device):
            tables, scratch = self.tables(problem, arrays), self.forward_rooms(problem, arrays)
            given = arrays | tables
            queues = self.forward_queues(problem, given | _unplaced(results | scratch))
            return _prepared(queues, given, results, scratch, tuple(tables.values()))

    def _backward(self, problem: AttentionProblem, arrays: Arrays) -> PreparedCall:
        results: Rooms = {
            f"grad_{name}": (arrays[name].shape, arrays[name].dtype)
            for name in _differentiated(problem)
        }
        scratch: Rooms = {"summary": ((*problem.output_shape[:-1], 4), "float32")}
        with on_device(arrays["query"].device):
            queues = self.backward_queues(problem, arrays | _unplaced(results | scratch))
            return _prepared(queues, arrays, results, scratch)


def _differentiated(problem: AttentionProblem) -> list[str]:
    """Return the names of what gets a gradient."""
    specs = {"mask": problem.mask, "sinks": problem.sinks}
    more = [name for name, each in specs.items() if each is not None and each.requires_grad]
    return ["query", "key", "value", *more]


class _Efficient(DeviceAttention):
    """The passes of attention.cu and mask.cu, compiled at their first use."""

    def forward_queues(self, problem: AttentionProblem, arrays: Arrays) -> list[Queue]:
        return [_queue(problem, launches.forward(problem, arrays, _precision()))]

    def backward_queues(self, problem: AttentionProblem, arrays: Arrays) -> list[Queue]:
        return [_queue(problem, launches.backward(problem, arrays, _precision()))]


EFFICIENT = _Efficient()


def _queue(problem: AttentionProblem, made: Sequence[Launch]) -> Queue:
    assert problem.capability is not None
    kernels = [
        (_kernel(each.function, each.tile, problem.capability), each.grid)
        for each in made
        if each.grid
    ]
    call = made[0].call
    argument = next((each.whole for each in made if each.whole), call)
    return Queue(kernels, argument, launches.OFFSETS, aligned(call))


def aligned(call: Call) -> list[str]:
    """Return the names of the arrays of which an argument says that they are read in whole 16 bytes."""
    return [name for name in launches.OFFSETS if hasattr(call, name) and getattr(call, name).fast]


def _arrays(tensors: Sequence[Any], more: Mapping[str, Any] | None = None) -> Arrays:
    """Return what is there of query, key, value, mask, out, logsumexp, grad_out and more by name."""
    return on_one_stream({**dict(zip(_NAMES, tensors, strict=False)), **(more or {})})


def _queued(call: PreparedCall, like: Any, arrays: Arrays) -> tuple[Any, ...]:
    return call.queue(like, arrays["query"].stream, [each.pointer for each in arrays.values()])


def _precision() -> str:
    return str(store.read("cuda.matmul.fp32_precision"))


def _unplaced(rooms: Rooms) -> Arrays:
    return {
        name: DeviceArray(0, shape, None, dtype, 0, None) for name, (shape, dtype) in rooms.items()
    }


def _prepared(
    queues: Sequence[Queue],
    arrays: Arrays,
    results: Rooms,
    scratch: Rooms,
    tables: Sequence[DeviceArray] = (),
) -> PreparedCall:
    index = arrays["query"].device
    places = {name: place for place, name in enumerate((*arrays, *results, *scratch))}
    made = [
        PreparedLaunches(
            [(kernel, (grid, 1, 1)) for kernel, grid in queue.kernels],
            index,
            queue.argument,
            [(places[name], at) for name, at in queue.offsets.items() if name in places],
        )
        for queue in queues
    ]
    whole = [places[name] for name in arrays if any(name in queue.aligned for queue in queues)]
    rooms = tuple(results.values()), tuple(scratch.values())
    return PreparedCall(made, index, *rooms, whole, tables)


@cache
def _kernel(function: str, tile: Tile, capability: tuple[int, int]) -> Kernel:
    block, shared = (32 * tile.warps, 1, 1), tile.shared_bytes(function)
    source = MASK_SOURCE if function == OF_MASK else SOURCE
    cubin = machine_code(source, capability, *launches.definitions(function, tile))
    return Kernel(cubin, f"attention_{function}", block, shared)
