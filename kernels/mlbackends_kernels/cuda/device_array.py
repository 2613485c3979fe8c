"""An array in a device's memory: what our operations take and return there.

Arrays of torch, CuPy, Numba, JAX and others come in by DLPack or `__cuda_array_interface__` and are
not copied; ours go out the same two ways.

Source: DLPack; the CUDA Array Interface, version 3.
"""

from typing import TYPE_CHECKING, Any

from mlbackends_kernels.cuda import dlpack, runtime
from mlbackends_kernels.cuda.dlpack import Described, packed_strides
from mlbackends_kernels.cuda.dtypes import ELEMENT_TYPES, named_by_typestr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class DeviceArray:
    """Elements at an address on a device; strides count elements. `owner` keeps the memory."""

    def __init__(self, described: Described) -> None:
        self.pointer, self.shape, self.strides, self.dtype, self.device, self._owner = described
        self.itemsize = ELEMENT_TYPES[self.dtype].itemsize

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

    def viewed(
        self, shape: "Sequence[int]", strides: "Sequence[int]", offset: int = 0
    ) -> "DeviceArray":
        """Return the same memory under another shape; offset and strides in elements."""
        pointer = self.pointer + offset * self.itemsize
        described = Described(
            pointer, tuple(shape), tuple(strides), self.dtype, self.device, self._owner
        )
        return DeviceArray(described)

    def as_type(self, dtype: str) -> "DeviceArray":
        """Return the same memory, its bits read as another type of the same size."""
        own = self.pointer, self.shape, self.strides, dtype, self.device, self._owner
        if ELEMENT_TYPES[dtype].itemsize != self.itemsize:
            raise TypeError(f"{self.dtype} and {dtype} are not of one size")
        return DeviceArray(Described(*own))

    def permuted(self, axes: "Sequence[int]") -> "DeviceArray":
        """Return a view with the axes in another order."""
        return self.viewed([self.shape[i] for i in axes], [self.strides[i] for i in axes])

    def numpy(self) -> "NDArray[Any]":
        """Return a copy in the host's memory; bfloat16, which NumPy lacks, as float32."""
        import numpy as np

        from mlbackends_kernels.cuda.strided_copy import packed

        source = packed(self)
        plain = np.uint16 if self.dtype == "bfloat16" else self.dtype
        result: NDArray[Any] = np.empty(self.shape, plain)
        with runtime.on_device(self.device):
            address = result.ctypes.data
            runtime.copy(address, source.pointer, source.nbytes, runtime.DEVICE_TO_HOST)
        if self.dtype == "bfloat16":
            result = (result.astype(np.uint32) << 16).view(np.float32)
        return result

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        element = ELEMENT_TYPES[self.dtype]
        if not element.typestr:
            raise AttributeError(f"the array interface has no {self.dtype}; use DLPack")
        strides = None if self.is_packed else tuple(step * self.itemsize for step in self.strides)
        return {
            "shape": self.shape,
            "typestr": element.typestr,
            "data": (self.pointer, False),
            "strides": strides,
            "version": 3,
            "stream": runtime.LEGACY_STREAM,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a capsule. The memory may be read on `stream` (-1: do not care) from then on."""
        del max_version  # what is without a version is understood by all
        if copy or (dl_device is not None and dl_device != self.__dlpack_device__()):
            raise BufferError("a DeviceArray is handed out where it is, and never copied")
        if stream not in (None, -1, runtime.LEGACY_STREAM):
            with runtime.on_device(self.device):
                runtime.synchronize()
        return dlpack.handed_out(
            Described(self.pointer, self.shape, self.strides, self.dtype, self.device, self._owner)
        )


def product(sizes: "Sequence[int]") -> int:
    """Return the product of sizes, 1 of none."""
    result = 1
    for size in sizes:
        result *= size
    return result


def empty(shape: "Sequence[int]", dtype: str, device: int) -> DeviceArray:
    """Return new memory on a device; its contents are undefined."""
    memory = runtime.Memory(product(shape) * ELEMENT_TYPES[dtype].itemsize, device)
    return DeviceArray(
        Described(memory.pointer, tuple(shape), packed_strides(shape), dtype, device, memory)
    )


def zeros(shape: "Sequence[int]", dtype: str, device: int) -> DeviceArray:
    """Return new memory on a device, filled with zeros."""
    result = empty(shape, dtype, device)
    with runtime.on_device(device):
        runtime.fill_with_zeros(result.pointer, result.nbytes)
    return result


def on_device(array: "NDArray[Any]", device: int = 0) -> DeviceArray:
    """Return a copy of a NumPy array in a device's memory."""
    import numpy as np

    source = np.ascontiguousarray(array)
    result = empty(array.shape, named_by_typestr(source.dtype.str), device)
    with runtime.on_device(device):
        runtime.copy(result.pointer, source.ctypes.data, source.nbytes, runtime.HOST_TO_DEVICE)
    return result


def is_on_device(thing: object) -> bool:
    """Tell whether something is an array in a CUDA device's memory."""
    kind = getattr(thing, "__dlpack_device__", None)
    if callable(kind):
        return int(kind()[0]) in (dlpack.CUDA, dlpack.MANAGED)
    return hasattr(thing, "__cuda_array_interface__")


def as_device_array(thing: Any) -> DeviceArray:
    """Return the array that another library has on a device, without a copy.

    What its own stream still has to do is waited for, or put before our work.
    """
    if isinstance(thing, DeviceArray):
        return thing
    if hasattr(thing, "__dlpack__"):
        return DeviceArray(dlpack.received(thing.__dlpack__(stream=runtime.LEGACY_STREAM)))
    return _by_array_interface(thing)


def _by_array_interface(thing: Any) -> DeviceArray:
    interface = thing.__cuda_array_interface__
    dtype, shape = named_by_typestr(interface["typestr"]), tuple(interface["shape"])
    if interface.get("mask") is not None:
        raise TypeError("an array with a mask cannot be computed with")
    itemsize, pointer = ELEMENT_TYPES[dtype].itemsize, int(interface["data"][0] or 0)
    strides = packed_strides(shape)
    if interface.get("strides") is not None:
        if any(step % itemsize for step in interface["strides"]):
            raise TypeError(
                f"strides of {interface['strides']} bytes are no multiples of {itemsize}"
            )
        strides = tuple(step // itemsize for step in interface["strides"])
    device = runtime.device_of(pointer) if pointer else runtime.current_device()
    stream = interface.get("stream")
    if stream not in (None, runtime.LEGACY_STREAM):
        with runtime.on_device(device):
            runtime.synchronize(stream)
    return DeviceArray(Described(pointer, shape, strides, dtype, device, thing))
