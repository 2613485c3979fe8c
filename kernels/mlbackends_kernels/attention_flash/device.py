"""Launches of flash_cuda on a device, on the stream of the caller's tensors."""

from collections.abc import Sequence
from functools import lru_cache

from mlbackends.model.problem import AttentionProblem
from mlbackends_kernels.attention_cuda.device import (
    Arrays,
    DeviceAttention,
    Queue,
    Rooms,
    aligned,
)
from mlbackends_kernels.attention_flash import cubins, hopper, launches
from mlbackends_kernels.attention_flash.chips import chip_of
from mlbackends_kernels.attention_flash.launches import Launch, Plan, Serving
from mlbackends_kernels.cuda import streams
from mlbackends_kernels.cuda.device_array import DeviceArray, to_device
from mlbackends_kernels.cuda.devices import multiprocessors


class _Flash(DeviceAttention):
    """The kernels of flash.cu and, where they serve, of hopper.cu, compiled ahead of time."""

    def tables(self, problem: AttentionProblem, arrays: Arrays) -> Arrays:
        if not problem.key_lengths:
            return {}
        return {"spans": _spans(tuple(launches.spans(problem)), arrays["query"].device)}

    def forward_rooms(self, problem: AttentionProblem, arrays: Arrays) -> Rooms:
        if hopper.serves(problem, arrays):
            return {}
        return launches.rooms(problem, _plan(problem, arrays))

    def forward_queues(self, problem: AttentionProblem, arrays: Arrays) -> list[Queue]:
        if hopper.serves(problem, arrays):
            return [_on_hopper(problem, hopper.forward(problem, arrays, _processors(arrays)))]
        return [_queue(problem, launches.forward(problem, arrays, _plan(problem, arrays)))]

    def backward_queues(self, problem: AttentionProblem, arrays: Arrays) -> list[Queue]:
        made = launches.backward(problem, arrays)
        if not hopper.serves(problem, arrays):
            return [_queue(problem, made)]
        first = [each for each in made if each.kernel in launches.OF_ROWS]
        rest = hopper.backward(problem, arrays, _processors(arrays))
        return [_queue(problem, first), *(_on_hopper(problem, each) for each in rest)]


FLASH = _Flash()


def _processors(arrays: Arrays) -> int:
    return multiprocessors(arrays["query"].device)


def _plan(problem: AttentionProblem, arrays: Arrays) -> Plan:
    return launches.plan(problem, _processors(arrays))


def _on_hopper(problem: AttentionProblem, launch: hopper.Launch) -> Queue:
    unit = cubins.unit(hopper.TARGET, problem.dtype, launch.width)
    kernels = [(cubins.kernel(unit, launch.kernel), launch.grid)]
    return Queue(kernels, launch.argument, launch.addresses, launch.maps, launch.maps)


@lru_cache(maxsize=64)
def _spans(spans: tuple[tuple[int, ...], ...], index: int) -> DeviceArray:
    import numpy as np

    return to_device(np.array(spans, "int32"), index, streams.LEGACY)


def _queue(problem: AttentionProblem, made: Sequence[Launch]) -> Queue:
    assert problem.capability is not None
    target = f"sm_{chip_of(problem.capability)}"
    kernels = [
        (cubins.kernel(cubins.unit(target, problem.dtype, each.width), each.kernel), each.grid)
        for each in made
        if each.grid
    ]
    argument = made[0].argument
    call = argument.call if isinstance(argument, Serving) else argument
    return Queue(kernels, argument, launches.OFFSETS, aligned(call))
