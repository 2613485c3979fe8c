"""Launches of flash_cuda on a device, on the stream of the caller's tensors."""

from collections.abc import Sequence
from functools import lru_cache

from mlbackends.model.problem import AttentionProblem
from mlbackends_kernels.attention_cuda.device import Arrays, DeviceAttention, Queue, Rooms
from mlbackends_kernels.attention_flash import cubins, launches
from mlbackends_kernels.attention_flash.chips import chip_of
from mlbackends_kernels.attention_flash.launches import Launch, Plan, Serving
from mlbackends_kernels.cuda import streams
from mlbackends_kernels.cuda.device_array import DeviceArray, to_device
from mlbackends_kernels.cuda.devices import multiprocessors


class _Flash(DeviceAttention):
    """The kernels of flash.cu, compiled ahead of time."""

    def forward_rooms(self, problem: AttentionProblem, index: int) -> Rooms:
        return launches.rooms(problem, _plan(problem, index))

    def forward_queue(self, problem: AttentionProblem, arrays: Arrays, index: int) -> Queue:
        if problem.key_lengths:
            spans = _spans(tuple(launches.spans(problem)), index)
            arrays = {**arrays, "spans": spans.on(arrays["query"].stream)}
        return _queue(problem, launches.forward(problem, arrays, _plan(problem, index)))

    def backward_queue(self, problem: AttentionProblem, arrays: Arrays) -> Queue:
        return _queue(problem, launches.backward(problem, arrays))


FLASH = _Flash()


def _plan(problem: AttentionProblem, index: int) -> Plan:
    return launches.plan(problem, multiprocessors(index))


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
    return Queue(kernels, argument, launches.OFFSETS, call)
