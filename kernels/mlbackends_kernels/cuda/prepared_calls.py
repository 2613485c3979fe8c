"""Calls on a device that repeat: the launches for tensors of one form are made once, and get addresses.

A form is what `form_of` returns of each tensor. Tensors are DeviceArrays or torch's, all of one kind.
"""

from collections.abc import Callable, Sequence
from typing import Any

from mlbackends.sdpa.describe import is_torch
from mlbackends_kernels.cuda import streams
from mlbackends_kernels.cuda.device_array import (
    DeviceArray,
    output_like,
    packed_strides,
    product,
)
from mlbackends_kernels.cuda.devices import on_device
from mlbackends_kernels.cuda.dtypes import ITEMSIZES
from mlbackends_kernels.cuda.launching import PreparedLaunches
from mlbackends_kernels.cuda.memory import Memory
from mlbackends_kernels.tensors.watching import watches

_ALIGNMENT = 16

Room = tuple[tuple[int, ...], str]
"""Shape and element type of a result, or of memory that launches need between them."""


def form_of(tensor: Any) -> tuple[Any, ...]:
    """Return shape, strides, element type and device of a DeviceArray or a tensor of torch."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


class PreparedCall:
    """Launches on tensors of one form, with room for what they write.

    launches: they take the addresses of the tensors, the results and the scratch, in this order.
    aligned: which of the tensors must have addresses that are multiples of 16 bytes.
    """

    def __init__(
        self,
        launches: Sequence[PreparedLaunches],
        device: int,
        results: Sequence[Room],
        scratch: Sequence[Room] = (),
        aligned: Sequence[int] = (),
    ) -> None:
        self._launches, self._device, self._aligned = tuple(launches), device, tuple(aligned)
        self._results = [
            (shape, packed_strides(shape), dtype, product(shape) * ITEMSIZES[dtype])
            for shape, dtype in results
        ]
        self._scratch = [product(shape) * ITEMSIZES[dtype] for shape, dtype in scratch]

    def queue(self, like: Any, stream: int, addresses: list[int]) -> list[Any]:
        """Queue the launches on a stream and return the results, of the kind of a tensor."""
        device, results, scratch = self._device, [], []
        with on_device(device):
            for shape, strides, dtype, size in self._results:
                if type(like) is DeviceArray:
                    owner = Memory(size, device, stream, is_current=True)
                    pointer = owner.pointer
                    made = DeviceArray(pointer, shape, strides, dtype, device, owner, stream)
                else:
                    made = output_like(like, shape, dtype)
                    pointer = made.data_ptr()
                results.append(made)
                addresses.append(pointer)
            for size in self._scratch:
                owner = Memory(size, device, stream, is_current=True)
                scratch.append(owner)
                addresses.append(owner.pointer)
            for each in self._launches:
                each(stream, addresses)
        return results

    def __call__(self, *tensors: Any) -> list[Any] | None:
        """Compute tensors of the form on the caller's stream; None for addresses that it is not made for."""
        first, chosen = tensors[0], streams.chosen()
        if type(first) is DeviceArray:
            stream = chosen or streams.LEGACY
            addresses = [each.on(stream).pointer for each in tensors]
        else:
            stream = streams.of_torch(first)
            if chosen not in (None, stream):  # there is an order to be made between the two
                return None
            addresses = [each.data_ptr() for each in tensors]
        bits = 0
        for place in self._aligned:
            bits |= addresses[place]
        return None if bits % _ALIGNMENT else self.queue(first, stream, addresses)


def watched(example: Any) -> Callable[..., bool] | None:
    """Return what tells whether query, key, value or mask, of an example's kind, carry more than numbers.

    None for a kind that calls are not prepared for; see `watches`.
    """
    kind: Any = type(example)
    if kind is DeviceArray:
        return lambda *_: False
    try:
        return watches(kind) if is_torch(example) else None
    except AttributeError:
        return None
