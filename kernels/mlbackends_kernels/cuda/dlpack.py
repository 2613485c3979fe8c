"""DLPack for device memory: arrays of other libraries come in, ours go out, and nothing is copied.

A producer's capsule is kept as it is, not consumed: its destructor calls the producer's deleter when
our view goes. Of the capsules that we hand out, the consumer's call of the deleter drops our reference.

Source: DLPack's C header (DLManagedTensor) and its Python specification.
"""

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends_kernels.cuda.dtypes import ELEMENT_TYPES, named_by_dlpack

if TYPE_CHECKING:
    from collections.abc import Sequence

CUDA, MANAGED = 2, 13
"""DLPack's numbers of the kinds of devices whose memory we take."""

_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Described(NamedTuple):
    """What a capsule tells. strides: in elements. owner: keeps the memory while it lives."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    owner: object


def received(capsule: object) -> Described:
    """Return what another library's capsule holds."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    address = api.PyCapsule_GetPointer(capsule, _NAME)
    tensor = _Managed.from_address(address).tensor
    dtype = named_by_dlpack(tensor.code, tensor.bits, tensor.lanes)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim))
    else:
        strides = packed_strides(shape)
    pointer = (tensor.data or 0) + tensor.byte_offset
    return Described(pointer, shape, strides, dtype, tensor.device_id, capsule)


def packed_strides(shape: "Sequence[int]") -> tuple[int, ...]:
    """Return the strides, in elements, of an array whose rows follow one another."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


_given_out: dict[int, tuple[Any, ...]] = {}
"""What each tensor that is out needs, by its address, until its deleter is called."""


def handed_out(described: Described) -> object:
    """Return a capsule for another library; it holds `described.owner` until it is done with it."""
    element = ELEMENT_TYPES[described.dtype]
    sizes = (ctypes.c_int64 * len(described.shape))(*described.shape)
    steps = (ctypes.c_int64 * len(described.strides))(*described.strides)
    managed = _Managed()
    tensor = managed.tensor
    tensor.data = described.pointer
    tensor.device_type, tensor.device_id = CUDA, described.device
    tensor.ndim = len(described.shape)
    (tensor.code, tensor.bits), tensor.lanes = element.dlpack, 1
    tensor.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
    address = ctypes.addressof(managed)
    _given_out[address] = (managed, sizes, steps, described.owner)
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return api.PyCapsule_New(address, _NAME, ctypes.cast(_destructor, ctypes.c_void_p))


def _forget(address: int) -> None:
    _given_out.pop(address, None)


def _forget_if_untaken(capsule: int) -> None:
    """Delete the tensor of a capsule that nobody took: a taken one has another name."""
    api = ctypes.pythonapi
    # The capsule is being destroyed: no object may be made of it, so its address is passed.
    valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    if valid(("PyCapsule_IsValid", api))(capsule, _NAME):
        _forget(pointer(("PyCapsule_GetPointer", api))(capsule, _NAME))


# A consumer may call the first from any thread; the second runs where the interpreter is held.
_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_forget)
_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget_if_untaken)
