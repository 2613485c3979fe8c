"""An array in a device's memory: what our operations take and return there.

Arrays of torch, CuPy, Numba, JAX and others come in by DLPack or `__cuda_array_interface__` and are
not copied; ours go out the same two ways. Each belongs to a stream: what was queued there comes first.

Source: DLPack; the CUDA Array Interface, version 3.
"""

import ctypes
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from mlbackends.sdpa.describe import is_torch
from mlbackends_kernels.cuda import streams
from mlbackends_kernels.cuda.devices import call, device_of, on_device
from mlbackends_kernels.cuda.dtypes import ITEMSIZES, known, numpy_dtype
from mlbackends_kernels.cuda.errors import CudaUnavailable, our_errors
from mlbackends_kernels.cuda.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

#: DLPack's numbers of the kinds of devices whose memory we take.
_CUDA, _MANAGED = 2, 13


class DeviceArray:
    """Elements at an address on a device; strides count elements.

    dtype: by NumPy's name, or bfloat16. owner: keeps the memory while it lives. stream: by its handle.
    """

    __slots__ = ("device", "dtype", "itemsize", "owner", "pointer", "shape", "stream", "strides")

    def __init__(
        self,
        pointer: int,
        shape: "Sequence[int]",
        strides: "Sequence[int] | None",
        dtype: str,
        device: int,
        owner: Any,
        stream: int = streams.LEGACY,
    ) -> None:
        self.pointer, self.shape, self.dtype, self.device = pointer, tuple(shape), dtype, device
        self.strides = packed_strides(self.shape) if strides is None else tuple(strides)
        self.owner, self.stream, self.itemsize = owner, stream, ITEMSIZES[dtype]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device='cuda:{self.device}')"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return product(self.shape)

    @property
    def nbytes(self) -> int:
        """What the elements take, in bytes."""
        return self.size * self.itemsize

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie one behind the other, the last index running fastest."""
        packed = packed_strides(self.shape)
        return not self.size or all(
            here == there or count == 1
            for here, there, count in zip(self.strides, packed, self.shape, strict=True)
        )

    def data_ptr(self) -> int:
        """Return the address; by this name Triton, cuDNN and torch know it."""
        return self.pointer

    def stride(self) -> tuple[int, ...]:
        """Return the strides, as a tensor of torch does."""
        return self.strides

    def viewed(
        self, shape: "Sequence[int]", strides: "Sequence[int] | None" = None, offset: int = 0
    ) -> "DeviceArray":
        """Return the same memory under another shape; offset and strides in elements, None: packed."""
        pointer = self.pointer + offset * self.itemsize
        return DeviceArray(
            pointer, shape, strides, self.dtype, self.device, self.owner, self.stream
        )

    def as_type(self, dtype: str) -> "DeviceArray":
        """Return the same memory, its bits read as another type of the same size."""
        if ITEMSIZES[known(dtype)] != self.itemsize:
            raise TypeError(f"{self.dtype} and {dtype} are not of one size")
        own = self.pointer, self.shape, self.strides
        return DeviceArray(*own, dtype, self.device, self.owner, self.stream)

    def permuted(self, axes: "Sequence[int]") -> "DeviceArray":
        """Return a view with the axes in another order."""
        return self.viewed([self.shape[i] for i in axes], [self.strides[i] for i in axes])

    def steps(self, shape: "Sequence[int]") -> tuple[int, ...]:
        """Return the strides by which it repeats to a larger shape, 0 along what repeats."""
        missing = len(shape) - len(self.shape)
        own = zip(self.shape, self.strides, strict=True)
        return (*[0] * missing, *(0 if size == 1 else step for size, step in own))

    def on(self, stream: int) -> "DeviceArray":
        """Return the array for work on a stream, which waits for what was queued on the array's own."""
        if stream == self.stream:
            return self
        with on_device(self.device):
            streams.follow(stream, self.stream)
        if isinstance(self.owner, Memory):
            self.owner.used_on(stream)
        elif is_torch(self.owner):
            self.owner.record_stream(_torchs_stream(stream, self.device))
        own = self.pointer, self.shape, self.strides, self.dtype, self.device
        return DeviceArray(*own, self.owner, stream)

    def numpy(self) -> "NDArray[Any]":
        """Return a copy in the host's memory, when it is there; bfloat16, which NumPy lacks, as float32."""
        import numpy as np

        from mlbackends_kernels.cuda.copies import packed

        source = packed(self)
        plain = np.uint16 if self.dtype == "bfloat16" else self.dtype
        result: NDArray[Any] = np.empty(self.shape, plain)
        if source.nbytes:
            with on_device(self.device):
                pointers = result.ctypes.data, source.pointer
                call("cuMemcpyDtoHAsync", *pointers, source.nbytes, source.stream)
                call("cuStreamSynchronize", source.stream)
        if self.dtype == "bfloat16":
            result = (result.astype(np.uint32) << 16).view(np.float32)
        return result

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("the array interface has no bfloat16; use DLPack")
        strides = None if self.is_packed else tuple(step * self.itemsize for step in self.strides)
        return {
            "shape": self.shape,
            "typestr": numpy_dtype(self.dtype).str,
            "data": (self.pointer, False),
            "strides": strides,
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
        """Return a capsule. What comes on `stream` waits for the memory on the device (-1: it need not)."""
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        if copy or (dl_device is not None and dl_device != self.__dlpack_device__()):
            raise BufferError("a DeviceArray is handed out where it is, and never copied")
        if stream != -1:
            self.on(stream or streams.LEGACY)
        span = 1 + sum((n - 1) * by for n, by in zip(self.shape, self.strides, strict=True))
        size = span * self.itemsize if self.size else 0
        with on_device(self.device):
            buffer = Buffer.from_handle(self.pointer, size, owner=self.owner)
            is_bfloat16 = self.dtype == "bfloat16"
            dtype = numpy_dtype("float16" if is_bfloat16 else self.dtype)
            view = StridedMemoryView.from_buffer(buffer, self.shape, self.strides, dtype=dtype)
            capsule = view.__dlpack__(max_version=max_version)
        if is_bfloat16:
            _call_bfloat16(capsule)
        return capsule


def _call_bfloat16(capsule: object) -> None:
    """Write bfloat16 into a capsule of float16: cuda.core 1.2 hands out no bfloat16."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetPointer.restype = (
        ctypes.c_char_p,
        ctypes.c_void_p,
    )
    api.PyCapsule_GetName.argtypes = (ctypes.py_object,)
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    name = api.PyCapsule_GetName(capsule)
    tensor = api.PyCapsule_GetPointer(capsule, name) + (32 if name.endswith(b"versioned") else 0)
    ctypes.c_uint8.from_address(tensor + 20).value = 4  # DLTensor.dtype.code: kDLBfloat


def product(sizes: "Sequence[int]") -> int:
    """Return the product of sizes, 1 of none."""
    result = 1
    for size in sizes:
        result *= size
    return result


def packed_strides(shape: "Sequence[int]") -> tuple[int, ...]:
    """Return the strides, in elements, of an array whose rows follow one another."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def empty(
    shape: "Sequence[int]", dtype: str, device: int, stream: int | None = None
) -> DeviceArray:
    """Return new memory on a device; its contents are undefined. stream: the caller's unless given."""
    stream = streams.callers() if stream is None else stream
    memory = Memory(product(shape) * ITEMSIZES[known(dtype)], device, stream)
    return DeviceArray(memory.pointer, shape, None, dtype, device, memory, stream)


def empty_like(
    array: DeviceArray, shape: "Sequence[int] | None" = None, dtype: str = ""
) -> DeviceArray:
    """Return new memory beside an array, on its stream; torch's or CuPy's if the array is theirs."""
    shape, dtype = tuple(array.shape if shape is None else shape), dtype or array.dtype
    if is_torch(array.owner):
        with as_owner(array):
            made = array.owner.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype))
    elif streams.is_cupy(array.owner) and dtype != "bfloat16":
        with as_owner(array):
            made = sys.modules["cupy"].empty(shape, dtype)
    else:
        return empty(shape, dtype, array.device, array.stream)
    return _of_owner(made, array.stream)


def output_like(tensor: Any, shape: "Sequence[int]", dtype: str) -> Any:
    """Return new memory for a result on the caller's stream: torch's beside a tensor of torch, else ours."""
    if not is_torch(tensor):
        return empty_like(as_device_array(tensor), shape, dtype)
    if streams.callers(tensor) != streams.of_torch(tensor):
        return empty_like(as_device_array(tensor), shape, dtype).owner
    return tensor.new_empty(tuple(shape), dtype=getattr(sys.modules["torch"], dtype))


@contextmanager
def as_owner(array: DeviceArray) -> "Iterator[None]":
    """Make an array's device and stream the current ones of the library that owns it: torch or CuPy."""
    handle = array.stream
    with ExitStack() as scopes:
        if is_torch(array.owner):
            scopes.enter_context(on_torchs_stream(array))
        elif streams.is_cupy(array.owner):
            cuda = sys.modules["cupy"].cuda
            scopes.enter_context(cuda.Device(array.device))
            is_legacy = handle == streams.LEGACY
            scopes.enter_context(cuda.Stream.null if is_legacy else cuda.ExternalStream(handle))
        yield


@contextmanager
def on_torchs_stream(array: DeviceArray) -> "Iterator[None]":
    """Make an array's device and stream the current ones of torch."""
    cuda = sys.modules["torch"].cuda
    with cuda.device(array.device), cuda.stream(_torchs_stream(array.stream, array.device)):
        yield


def _torchs_stream(handle: int, index: int) -> Any:
    cuda = sys.modules["torch"].cuda
    is_legacy = handle == streams.LEGACY
    return cuda.default_stream(index) if is_legacy else cuda.ExternalStream(handle, index)


def zeros_like(
    array: DeviceArray, shape: "Sequence[int] | None" = None, dtype: str = ""
) -> DeviceArray:
    """Return new memory beside an array, filled with zeros."""
    result = empty_like(array, shape, dtype)
    if result.nbytes:
        with on_device(array.device):
            call("cuMemsetD8Async", result.pointer, 0, result.nbytes, result.stream)
    return result


def filled_with_ones(array: DeviceArray) -> DeviceArray:
    """Return an array of memory of its own, filled with ones on the device: a graph may repeat it."""
    import numpy as np

    at, size, stream = array.pointer, array.itemsize, array.stream
    one = b"\x80\x3f" if array.dtype == "bfloat16" else np.ones(1, array.dtype).tobytes()
    step = min(size, 4)
    fill, sizes = f"cuMemsetD2D{8 * step}Async", (1, array.size) if size > step else (array.size, 1)
    with on_device(array.device):
        for offset in range(0, size, step) if array.size else ():
            word = int.from_bytes(one[offset : offset + step], "little")
            call(fill, at + offset, size, word, *sizes, stream)
    return array


def to_device(array: "NDArray[Any]", device: int = 0, stream: int | None = None) -> DeviceArray:
    """Return a copy of a NumPy array in a device's memory. stream: the caller's unless given."""
    import numpy as np

    source = np.ascontiguousarray(array)
    result = empty(array.shape, known(source.dtype.name), device, stream)
    if result.nbytes:
        with on_device(device):
            pointers = result.pointer, source.ctypes.data
            call("cuMemcpyHtoDAsync", *pointers, source.nbytes, result.stream)
    return result


def is_on_device(thing: object) -> bool:
    """Tell whether something is an array in a CUDA device's memory."""
    kind = getattr(thing, "__dlpack_device__", None)
    if callable(kind):
        return int(kind()[0]) in (_CUDA, _MANAGED)
    return hasattr(thing, "__cuda_array_interface__")


def as_device_array(thing: Any, stream: int | None = None) -> DeviceArray:
    """Return the array that another library has on a device, without a copy, for work on a stream.

    stream: the caller's unless given. What the other's stream still has to do comes before our work,
    on the device. Raises TypeError for elements that nothing computes with, CudaUnavailable for memory
    of the host.
    """
    stream = streams.callers(thing) if stream is None else stream
    if isinstance(thing, DeviceArray):
        return thing.on(stream)
    if is_torch(thing):
        return _of_owner(thing, streams.of_torch(thing)).on(stream)
    if streams.is_cupy(thing):
        return _of_owner(thing, streams.of_cupy(thing)).on(stream)
    return _viewed_by_protocol(thing, stream)


def on_one_stream(tensors: "Mapping[str, Any]") -> dict[str, DeviceArray]:
    """Return what is there of some tensors, by name, for work on the stream of the first one."""
    first = as_device_array(next(iter(tensors.values())))
    given = ((name, tensor) for name, tensor in tensors.items() if tensor is not None)
    return {name: as_device_array(tensor, first.stream) for name, tensor in given}


def _of_owner(thing: Any, stream: int) -> DeviceArray:
    if is_torch(thing):
        dtype = known(str(thing.dtype).removeprefix("torch."))
        shape, index = tuple(map(int, thing.shape)), int(thing.device.index or 0)
        return DeviceArray(thing.data_ptr(), shape, thing.stride(), dtype, index, thing, stream)
    dtype, index = known(thing.dtype.name), int(thing.device.id)
    strides = _in_elements(thing.strides, ITEMSIZES[dtype])
    return DeviceArray(int(thing.data.ptr), thing.shape, strides, dtype, index, thing, stream)


def _viewed_by_protocol(thing: Any, stream: int) -> DeviceArray:
    from cuda.core.utils import StridedMemoryView

    if not hasattr(thing, "__dlpack__"):
        interface = thing.__cuda_array_interface__
        itemsize = numpy_dtype(known(_name_of(interface["typestr"]))).itemsize
        if interface.get("mask") is not None:
            raise TypeError("an array with a mask cannot be computed with")
        if interface.get("stream") == 0:
            raise TypeError(
                "an array on stream 0, which may be either default stream: 1 or 2 is one"
            )
        _in_elements(interface.get("strides") or (), itemsize)
        pointer = int(interface["data"][0] or 0)
        index = device_of(pointer) if pointer else 0
    else:
        index = int(thing.__dlpack_device__()[1])
    with on_device(index), our_errors("StridedMemoryView"):
        try:
            view = StridedMemoryView.from_any_interface(thing, stream_ptr=stream)
            dtype = view.dtype
        # bfloat16 without ml_dtypes, and types that NumPy lacks.
        except NotImplementedError as error:
            raise TypeError(str(error)) from None
    if not view.is_device_accessible:
        raise CudaUnavailable(f"the memory at {view.ptr:#x} is not a CUDA device's")
    return DeviceArray(view.ptr, view.shape, view.strides, known(dtype.name), index, view, stream)


def _in_elements(strides: "Sequence[int]", itemsize: int) -> list[int]:
    if any(step % itemsize for step in strides):
        raise TypeError(f"strides of {tuple(strides)} bytes are no multiples of {itemsize}")
    return [step // itemsize for step in strides]


def _name_of(typestr: str) -> str:
    import numpy as np

    try:
        return np.dtype(typestr).name if np.dtype(typestr).isnative else typestr
    except TypeError:
        return typestr
