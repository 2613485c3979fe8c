"""Calls on a device that repeat: the launches for tensors of one form are made once, and get addresses.

A form is what `form_of` returns of each tensor. Tensors are DeviceArrays or torch's, all of one kind.
"""

import sys
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
from mlbackends_kernels.cuda.devices import driver, on_device
from mlbackends_kernels.cuda.dtypes import ITEMSIZES
from mlbackends_kernels.cuda.launching import PreparedLaunches
from mlbackends_kernels.cuda.memory import Memory
from mlbackends_kernels.tensors.watching import watches

_ALIGNMENT = 16

#: Tables that graphs read whenever they are launched: they are never given back.
_read_by_graphs: set[DeviceArray] = set()

_MORE = ("seed", "sinks", "page_table")
#: What a prepared call is called with; the last two only where the problem has fields that torch has not.
FORWARD = ("query", "key", "value", "mask", *_MORE)
#: Likewise one for gradients.
BACKWARD = ("grad_out", "query", "key", "value", "mask", "out", "logsumexp", *_MORE)

#: Shape and element type of a result, or of memory that launches need between them.
Room = tuple[tuple[int, ...], str]


def form_of(tensor: Any) -> tuple[Any, ...]:
    """Return shape, strides, element type and device of a DeviceArray or a tensor of torch."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


class PreparedCall:
    """Launches on tensors of one form, with room for what they write.

    launches: they take the addresses of the tensors, the tables, the results and the scratch, in this order.
    aligned: which of the tensors must have addresses that are multiples of 16 bytes. tables: arrays that
    all calls read.
    """

    def __init__(
        self,
        launches: Sequence[PreparedLaunches],
        device: int,
        results: Sequence[Room],
        scratch: Sequence[Room] = (),
        aligned: Sequence[int] = (),
        tables: Sequence[DeviceArray] = (),
    ) -> None:
        self._launches, self._device, self._aligned = tuple(launches), device, tuple(aligned)
        self._current_device, self._tables = driver().cuCtxGetDevice, tuple(tables)
        self._torchs_stream: Any = None
        self._torchs_empty: Any = None
        if torch := sys.modules.get("torch"):
            self._torchs_stream = streams.torchs_current()
            # What torch's compiled code allocates with, on the current device: it skips the dispatcher.
            guards = getattr(getattr(torch, "_C", None), "_dynamo", None)
            self._torchs_empty = getattr(
                getattr(guards, "guards", None), "_empty_strided_cuda", None
            )
        self._results = [
            (
                *(shape, packed_strides(shape), dtype, product(shape) * ITEMSIZES[dtype]),
                getattr(torch, dtype, None),
            )
            for shape, dtype in results
        ]
        self._scratch = [product(shape) * ITEMSIZES[dtype] for shape, dtype in scratch]

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...] | None:
        """Compute tensors of the form on the caller's stream; None for those that it is not made for."""
        first, stream, empty = tensors[0], streams.chosen(), None
        if type(first) is DeviceArray:
            stream = stream or streams.LEGACY
            addresses = [
                each.pointer if each.stream == stream else each.on(stream).pointer
                for each in tensors
            ]
        else:
            chosen, stream = stream, int(self._torchs_stream(self._device)) or streams.LEGACY
            # Between two streams there is an order to be made.
            if chosen not in (None, stream) or _is_watched(tensors):
                return None
            addresses = [each.data_ptr() for each in tensors]
            empty = self._torchs_empty
        bits = 0
        for place in self._aligned:
            bits |= addresses[place]
        return None if bits % _ALIGNMENT else self.queue(first, stream, addresses, empty)

    def queue(
        self, like: Any, stream: int, addresses: list[int], empty: Callable[..., Any] | None = None
    ) -> tuple[Any, ...]:
        """Queue the launches on a stream and return the results, of the kind of a tensor.

        empty: makes a tensor of torch of sizes, strides and a type, on the current device and torch's
        current stream, where that is the one.
        """
        status, now = self._current_device()
        if not status and int(now) == self._device:
            return self._queue(like, stream, addresses, empty)
        with on_device(self._device):
            return self._queue(like, stream, addresses, empty)

    def _queue(
        self, like: Any, stream: int, addresses: list[int], empty: Callable[..., Any] | None
    ) -> tuple[Any, ...]:
        device, results, scratch = self._device, [], []
        if self._tables:
            addresses.extend([each.on(stream).pointer for each in self._tables])
            if streams.is_captured(stream):
                _read_by_graphs.update(self._tables)
        for shape, strides, dtype, size, torchs in self._results:
            if empty is not None:
                made = empty(shape, strides, torchs)
                pointer = made.data_ptr()
            elif type(like) is DeviceArray:
                owner = Memory(size, device, stream, True)
                pointer = owner.pointer
                made = DeviceArray(pointer, shape, strides, dtype, device, owner, stream)
            else:
                made = output_like(like, shape, dtype)
                pointer = made.data_ptr()
            results.append(made)
            addresses.append(pointer)
        for size in self._scratch:
            owner = Memory(size, device, stream, True)
            scratch.append(owner)
            addresses.append(owner.pointer)
        for launch in self._launches:
            launch(stream, addresses)
        return tuple(results)


def can_prepare(example: Any) -> bool:
    """Tell whether calls with tensors of an example's kind can be prepared."""
    kind: Any = type(example)
    try:
        return kind is DeviceArray or (is_torch(example) and watches(kind) is not None)
    except AttributeError:
        return False


def forms_of_results(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return the forms of result, logarithms and the result's gradient. tensors: in the order of BACKWARD."""
    return form_of(tensors[5]), form_of(tensors[6]), form_of(tensors[0])


def results_like(out: Any, logsumexp: Any) -> Callable[[tuple[Any, ...]], bool]:
    """Return what tells whether `forms_of_results` are those of an example, whatever the strides."""
    one, other = form_of(out), form_of(logsumexp)

    def fits(forms: tuple[Any, ...]) -> bool:
        pairs = zip(forms, (one, other, one), strict=True)
        return all((a[0], *a[2:]) == (b[0], *b[2:]) for a, b in pairs)

    return fits


def repeated(attend: Callable[..., tuple[Any, Any]], *example: Any) -> Callable[..., Any] | None:
    """Return what computes calls of a form by a function that checks nothing; None where it may not.

    attend: takes query, key, value and mask. example: as of `AttentionBackend.prepared`.
    """
    if not can_prepare(example[0]):
        return None
    wants_both = example[-1] is not None

    def call(*tensors: Any) -> Any:
        if _is_watched(tensors[:4]):
            return None
        found = attend(*tensors[:4])
        return found if wants_both else found[0]

    return call


def repeated_backward(
    differentiate: Callable[..., Any], *example: Any
) -> Callable[..., Any] | None:
    """Return what computes gradients, as `repeated` does attention, of the first seven of BACKWARD."""
    if not can_prepare(example[0]):
        return None
    fits = results_like(*example[-2:])

    def call(*tensors: Any) -> Any:
        given = tensors[:7]
        if _is_watched(given) or not fits(forms_of_results(given)):
            return None
        return differentiate(*given)

    return call


def _is_watched(tensors: Sequence[Any]) -> bool:
    kind: Any = type(tensors[0])
    if kind is DeviceArray:
        return False
    tells = watches(kind)
    return tells is not None and tells(*tensors)
