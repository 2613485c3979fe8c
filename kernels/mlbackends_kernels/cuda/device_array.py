"""An array in a device's memory: an operand or a result of attention.

Arrays of torch, CuPy, JAX and others come in by DLPack or `__cuda_array_interface__` without a copy; ours
go out the same two ways. Each array belongs to a stream: the work queued there comes first.

Source: DLPack; the CUDA Array Interface, version 3; CUDA Driver API, stream ordered memory allocator.
"""

import ctypes
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from mlbackends.model.problem import contiguous_strides
from mlbackends.sdpa.describe import is_torch
from mlbackends_kernels.cuda import streams
from mlbackends_kernels.cuda.devices import (
    CudaUnavailable,
    call,
    core_device,
    driver,
    on_device,
    our_errors,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: DLPack's number of CUDA devices.
_CUDA = 2
_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE
#: CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: what the legacy stream returns during a capture.
_CAPTURE_IMPLICIT = 906
_ITEM_BYTES = {
    "bool": 1, "int32": 4, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip


class DeviceArray:
    """Elements at an address on a device; strides count elements.

    dtype: by NumPy's name, or bfloat16. owner: keeps the memory while it lives. stream: by its handle.
    """

    __slots__ = ("device", "dtype", "itemsize", "owner", "pointer", "shape", "stream", "strides")

    def __init__(
        self,
        pointer: int,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        dtype: str,
        device: int,
        owner: Any,
        stream: int = streams.LEGACY,
    ) -> None:
        self.pointer, self.shape, self.dtype, self.device = pointer, tuple(shape), dtype, device
        self.strides = contiguous_strides(self.shape) if strides is None else tuple(strides)
        self.owner, self.stream, self.itemsize = owner, stream, _ITEM_BYTES[dtype]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device='cuda:{self.device}')"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return prod(self.shape) * self.itemsize

    @property
    def _span(self) -> tuple[int, int]:
        """The elements in memory before and from the address, with those that strides skip."""
        if not self.nbytes:
            return 0, 0
        last = [(size - 1) * step for size, step in zip(self.shape, self.strides, strict=True)]
        return -sum(min(step, 0) for step in last), 1 + sum(max(step, 0) for step in last)

    def data_ptr(self) -> int:
        """Return the address; cuDNN and torch use this name."""
        return self.pointer

    def viewed(
        self, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0
    ) -> "DeviceArray":
        """Return the same memory with another shape; strides and offset in elements, None: contiguous."""
        pointer = self.pointer + offset * self.itemsize
        return DeviceArray(pointer, shape, strides, self.dtype, self.device, self.owner, self.stream)

    def as_type(self, dtype: str) -> "DeviceArray":
        """Return the same memory, its bits read as another type of the same size."""
        if _ITEM_BYTES[_known(dtype)] != self.itemsize:
            raise TypeError(f"{self.dtype} and {dtype} differ in size")
        fields = self.pointer, self.shape, self.strides
        return DeviceArray(*fields, dtype, self.device, self.owner, self.stream)

    def on(self, stream: int) -> "DeviceArray":
        """Return the array for work on a stream, which waits for the array's own stream."""
        if stream == self.stream:
            return self
        with on_device(self.device):
            streams.follow(stream, self.stream)
        if isinstance(self.owner, _Memory):
            self.owner.used_on(stream)
        elif is_torch(self.owner):
            self.owner.record_stream(_torchs_stream(stream, self.device))
        fields = self.pointer, self.shape, self.strides, self.dtype, self.device
        return DeviceArray(*fields, self.owner, stream)

    def numpy(self) -> "NDArray[Any]":
        """Return a copy in the host's memory, once it is complete; bfloat16 as float32."""
        import numpy as np

        before, after = self._span
        flat = np.empty(before + after, np.uint16 if self.dtype == "bfloat16" else self.dtype)
        if flat.nbytes:
            with on_device(self.device):
                pointers = flat.ctypes.data, self.pointer - before * self.itemsize
                call("cuMemcpyDtoHAsync", *pointers, flat.nbytes, self.stream)
                call("cuStreamSynchronize", self.stream)
        steps = [step * self.itemsize for step in self.strides]
        view = np.lib.stride_tricks.as_strided(flat[before:], self.shape, steps)
        result = np.ascontiguousarray(view)
        if self.dtype == "bfloat16":
            result = (result.astype(np.uint32) << 16).view(np.float32)
        return result.reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("the array interface has no bfloat16; use DLPack")
        return {
            "shape": self.shape,
            "typestr": _numpy_dtype(self.dtype).str,
            "data": (self.pointer, False),
            "strides": tuple(step * self.itemsize for step in self.strides),
            "version": 3,
            "stream": self.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a capsule. Later work on `stream` waits for the memory on the device (-1: it does not)."""
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        if copy or (dl_device is not None and dl_device != self.__dlpack_device__()):
            raise BufferError("a DeviceArray is exported where it is, without a copy")
        if stream != -1:
            self.on(stream or streams.LEGACY)
        with on_device(self.device):
            buffer = Buffer.from_handle(self.pointer, self._span[1] * self.itemsize, owner=self.owner)
            is_bfloat16 = self.dtype == "bfloat16"
            dtype = _numpy_dtype("float16" if is_bfloat16 else self.dtype)
            view = StridedMemoryView.from_buffer(buffer, self.shape, self.strides, dtype=dtype)
            capsule = view.__dlpack__(max_version=max_version)
        if is_bfloat16:
            # Write bfloat16 into a capsule of float16: cuda.core 1.2 does not export bfloat16.
            api = ctypes.pythonapi
            api.PyCapsule_GetName.restype = ctypes.c_char_p
            api.PyCapsule_GetPointer.restype = ctypes.c_void_p
            api.PyCapsule_GetName.argtypes = (ctypes.py_object,)
            api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
            name = api.PyCapsule_GetName(capsule)
            tensor = api.PyCapsule_GetPointer(capsule, name) + (32 if name.endswith(b"versioned") else 0)
            ctypes.c_uint8.from_address(tensor + 20).value = 4  # DLTensor.dtype.code: kDLBfloat
        return capsule


# ---- memory of our own -------------------------------------------------------


class _Memory:
    """Bytes from a device's pool, freed in the order of the streams that used them."""

    __slots__ = ("_buffer", "_device", "_of_graph", "_others", "pointer", "stream")

    def __init__(self, size: int, device: int, stream: int) -> None:
        self.pointer, self._device, self.stream = 0, device, stream
        self._others: tuple[int, ...] = ()
        self._buffer: Any = None
        for _ in range(len(_postponed)):
            try:
                _postponed.pop(0)._free()  # noqa: SLF001
            except IndexError:  # another thread was first
                break
        if not size:
            return
        with on_device(device), our_errors(f"allocating {size} bytes on cuda:{device}"):
            self._of_graph = streams.is_captured(stream)
            resource = core_device(device).memory_resource
            if self._of_graph:
                from cuda.core import GraphMemoryResource

                resource = GraphMemoryResource(device)
            self._buffer = resource.allocate(size, stream=streams.of_core(stream))
            self.pointer = int(self._buffer.handle)

    def used_on(self, stream: int) -> None:
        """Free the memory only after the work that is queued on this stream until then."""
        if stream != self.stream and stream not in self._others:
            self._others = (*self._others, stream)

    def __del__(self) -> None:
        try:
            if self._buffer is not None:
                self._free()
        except Exception:  # noqa: BLE001  the interpreter may be shutting down
            return

    def _free(self) -> None:
        """Free the memory; after a capture, if there is one, which may free only its graph's memory."""
        with on_device(self._device):
            status, state = driver().cuStreamIsCapturing(self.stream)
            is_blocked = status == _CAPTURE_IMPLICIT if status else bool(state)
            if is_blocked and not self._of_graph:
                _postponed.append(self)
                return
            for other in self._others:
                streams.follow(self.stream, other)
            self._buffer.close(streams.of_core(self.stream))
            self._buffer = None


_postponed: list[_Memory] = []


def empty(shape: Sequence[int], dtype: str, device: int, stream: int | None = None) -> DeviceArray:
    """Return new memory on a device; its contents are undefined. stream: the caller's unless given."""
    stream = streams.callers() if stream is None else stream
    memory = _Memory(prod(shape) * _ITEM_BYTES[_known(dtype)], device, stream)
    return DeviceArray(memory.pointer, shape, None, dtype, device, memory, stream)


def zeros(shape: Sequence[int], dtype: str, device: int, stream: int | None = None) -> DeviceArray:
    """Return new memory on a device, filled with zeros. stream: the caller's unless given."""
    result = empty(shape, dtype, device, stream)
    if result.nbytes:
        with on_device(device):
            call("cuMemsetD8Async", result.pointer, 0, result.nbytes, result.stream)
    return result


def to_device(array: "NDArray[Any]", device: int = 0, stream: int | None = None) -> DeviceArray:
    """Return a copy of a NumPy array in a device's memory. stream: the caller's unless given."""
    import numpy as np

    source = np.ascontiguousarray(array)
    result = empty(array.shape, _known(source.dtype.name), device, stream)
    if result.nbytes:
        with on_device(device):
            pointers = result.pointer, source.ctypes.data
            call("cuMemcpyHtoDAsync", *pointers, source.nbytes, result.stream)
    return result


def output_like(tensor: Any, shape: Sequence[int], dtype: str, stream: int) -> Any:
    """Return new memory for a result on a stream: torch's for a tensor of torch, otherwise ours.

    Raises CudaUnavailable where ours would belong to a graph: nothing in it frees the result, and CUDA does
    not launch such a graph again.
    """
    if not is_torch(tensor):
        if streams.is_captured(stream):
            message = "a result allocated inside a CUDA graph would allow one launch only"
            raise CudaUnavailable(message, "capture calls with torch's tensors, in torch.cuda.graph")
        return empty(shape, dtype, as_device_array(tensor, stream).device, stream)
    torch, index = sys.modules["torch"], int(tensor.device.index or 0)
    with torch.cuda.device(index), torch.cuda.stream(_torchs_stream(stream, index)):
        return tensor.new_empty(tuple(shape), dtype=getattr(torch, dtype))


def _torchs_stream(handle: int, index: int) -> Any:
    cuda = sys.modules["torch"].cuda
    is_legacy = handle == streams.LEGACY
    return cuda.default_stream(index) if is_legacy else cuda.ExternalStream(handle, index)


# ---- arrays of other libraries -----------------------------------------------


def on_one_stream(tensors: Mapping[str, Any]) -> dict[str, DeviceArray]:
    """Return those tensors that are not None, by name, for work on the caller's stream of the first one."""
    first = as_device_array(next(iter(tensors.values())))
    given = ((name, tensor) for name, tensor in tensors.items() if tensor is not None)
    return {name: as_device_array(tensor, first.stream) for name, tensor in given}


def as_device_array(thing: Any, stream: int | None = None) -> DeviceArray:
    """Return another library's array on a device, without a copy, for work on a stream.

    stream: the caller's unless given. It waits, on the device, for the work on the array's own stream.
    Raises TypeError for unsupported elements, CudaUnavailable for memory of the host.
    """
    stream = streams.callers(thing) if stream is None else stream
    if isinstance(thing, DeviceArray):
        return thing.on(stream)
    if is_torch(thing):
        fields = thing.data_ptr(), tuple(map(int, thing.shape)), thing.stride()
        dtype, index = str(thing.dtype).removeprefix("torch."), int(thing.device.index or 0)
        return DeviceArray(*fields, _known(dtype), index, thing, streams.of_torch(thing)).on(stream)
    if not hasattr(thing, "__dlpack__"):
        interface = thing.__cuda_array_interface__
        if interface.get("mask") is not None:
            raise TypeError("an array with a mask is not supported")
        if interface.get("stream") == 0:
            raise TypeError("the array's stream is 0, which is ambiguous: it must be 1 or 2")
        index = _device_of(int(interface["data"][0] or 0))
    else:
        index = int(thing.__dlpack_device__()[1])
    from cuda.core.utils import StridedMemoryView

    with on_device(index), our_errors("StridedMemoryView"):
        try:
            view = StridedMemoryView.from_any_interface(thing, stream_ptr=stream)
            dtype = _known(view.dtype.name)
        except (NotImplementedError, ValueError) as error:
            # Types that NumPy lacks, bfloat16 without ml_dtypes, strides that are no whole elements.
            raise TypeError(str(error)) from None
    if not view.is_device_accessible:
        raise CudaUnavailable(f"the memory at {view.ptr:#x} is not a CUDA device's")
    return DeviceArray(view.ptr, view.shape, view.strides, dtype, index, view, stream)


def _device_of(pointer: int) -> int:
    """Return the device of memory, 0 for none. Raises CudaUnavailable if it is the host's."""
    if not pointer:
        return 0
    kinds = driver().CUpointer_attribute
    kind = call("cuPointerGetAttribute", kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer)
    is_managed = call("cuPointerGetAttribute", kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer)
    if int(kind) != _DEVICE_MEMORY and not is_managed:
        raise CudaUnavailable(f"the memory at {pointer:#x} is not a CUDA device's")
    return int(call("cuPointerGetAttribute", kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer))


def _known(dtype: str) -> str:
    """Return a type's name. Raises TypeError for an unsupported one."""
    if dtype not in _ITEM_BYTES:
        raise TypeError(f"elements of type {dtype} are not one of {', '.join(_ITEM_BYTES)}")
    return dtype


@cache
def _numpy_dtype(name: str) -> Any:
    import numpy as np

    return np.dtype(name)
