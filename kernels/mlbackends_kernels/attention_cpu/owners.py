"""Whose tensors the library can read by itself: numpy's, and torch's through DLPack's exchange API.

A Python object's own fields are read by their place in memory, which is tried on some arrays first.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from mlbackends_kernels.attention_cpu.library import LAYOUT, OWNER, planning
from mlbackends_kernels.tensors.arithmetic import numpy

if TYPE_CHECKING:
    from collections.abc import Callable

_WORD = ctypes.sizeof(ctypes.c_void_p)
#: The bytes of PyArrayObject_fields up to the descriptor, and where that lies.
_ARRAY_BYTES, _DESCRIPTOR = 6 * _WORD, 5 * _WORD
#: dlpack.h: the header of DLPackExchangeAPI (major version first), then its functions.
_DLPACK_MAJOR, _TELL = 1, 5


@cache
def owner_of(kind: type) -> bytes | None:
    """Return what the library must know to read objects of exactly a type, None where it cannot."""
    if sys.implementation.name != "cpython":
        return None
    header = object.__basicsize__
    if not _content_is_last():
        return None
    if kind is numpy().ndarray:
        return OWNER.pack(id(kind), header, 0) if _arrays_are_as_thought(header) else None
    torch: Any = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor and _type_is_last(header, torch.ones(())):
        tell = _exchange(kind)
        return OWNER.pack(id(kind), header, tell) if tell else None
    return None


def layout_of(owner: bytes, tensor: Any) -> tuple[bytes, int] | None:
    """Return how a tensor lies and its address, None where the library cannot read it."""
    layout = ctypes.create_string_buffer(LAYOUT.size)
    try:
        address = planning().mlbackends_attention_layout_of(owner, id(tensor), layout)
    except Exception:  # noqa: BLE001  whatever its owner says of it
        return None
    return (layout.raw, address) if address else None


@cache
def watched(kind: type) -> Callable[..., bool] | None:
    """Return what tells, of query, key, value and mask, that more than numbers is at stake.

    That is: a tangent, a sign that is not applied yet, storage that was freed below a tensor with an
    offset (without one, the library sees a null pointer), or anybody who looks on; gradients are another
    matter. None where a type knows nothing of the kind. Raises AttributeError for a torch that cannot tell.
    """
    return _watched_by_torch() if kind is not numpy().ndarray else None


def _watched_by_torch() -> Callable[..., bool]:
    torch: Any = sys.modules["torch"]
    core = torch._C  # noqa: SLF001  nowhere else
    if hasattr(torch.Tensor, "has_names"):
        raise AttributeError("in an older torch tensors may have names")
    dispatch_modes, function_modes = core._len_torch_dispatch_stack, core._len_torch_function_stack  # noqa: SLF001
    included, before_autograd = (
        core._dispatch_tls_is_dispatch_key_included,  # noqa: SLF001
        core.DispatchKey.PreDispatch,
    )
    transform, trace = core._functorch.peek_interpreter_stack, core._get_tracing_state  # noqa: SLF001
    forward = torch.autograd.forward_ad
    forward._current_level  # noqa: B018, SLF001  -1 outside of forward-mode differentiation

    def is_watched(query: Any, key: Any, value: Any, mask: Any) -> bool:
        if mask is not None and (
            mask.is_neg() or (mask.storage_offset() and not mask.untyped_storage().nbytes())
        ):
            return True
        return (
            query.is_neg()
            or key.is_neg()
            or value.is_neg()
            or (query.storage_offset() and not query.untyped_storage().nbytes())
            or (key.storage_offset() and not key.untyped_storage().nbytes())
            or (value.storage_offset() and not value.untyped_storage().nbytes())
            or dispatch_modes()
            or function_modes()
            or transform() is not None
            or trace() is not None
            or forward._current_level >= 0  # noqa: SLF001
            or included(before_autograd)
        )

    return is_watched


def _exchange(kind: type) -> int:
    """Return the address of DLPack's `dltensor_from_py_object_no_sync` of a type, 0 without one."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if type(capsule).__name__ != "PyCapsule":
        return 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = pointer(capsule, b"dlpack_exchange_api")
    if ctypes.c_uint32.from_address(table).value != _DLPACK_MAJOR:
        return 0
    return ctypes.c_void_p.from_address(table + _TELL * _WORD).value or 0


def _content_is_last() -> bool:
    """Tell whether the content of bytes begins where the library will look for a plan."""
    some = bytes(range(40))
    return ctypes.string_at(id(some) + bytes.__basicsize__ - 1, len(some)) == some


def _type_is_last(header: int, thing: object) -> bool:
    """Tell whether the last word of an object's header is its type."""
    return ctypes.c_void_p.from_address(id(thing) + header - _WORD).value == id(type(thing))


def _arrays_are_as_thought(header: int) -> bool:
    """Tell whether numpy's arrays have their fields where planned.cpp looks for them."""
    np = numpy()
    if np.ndarray.__basicsize__ < header + _ARRAY_BYTES:
        return False
    some = [
        np.zeros(shape, dtype)[cut]
        for shape, dtype, cut in itertools.product(
            [(5,), (3, 4), (2, 3, 4, 5)], ["f4", "f8", "?"], [..., slice(1, None)]
        )
    ]
    return all(_is_as_thought(header, array) for array in [*some, *(each.T for each in some)])


def _is_as_thought(header: int, array: Any) -> bool:
    start, told = id(array) + header, array.__array_interface__
    word = ctypes.c_void_p.from_address
    counts = ctypes.c_int64 * array.ndim
    if (
        not _type_is_last(header, array)
        or word(start).value != told["data"][0]
        or ctypes.c_int.from_address(start + _WORD).value != array.ndim
        or word(start + _DESCRIPTOR).value != id(array.dtype)
    ):
        return False
    shape, strides = (word(start + place * _WORD).value for place in (2, 3))
    return (
        None not in (shape, strides)
        and tuple(counts.from_address(shape or 0)) == array.shape
        and tuple(counts.from_address(strides or 0)) == array.strides
    )
