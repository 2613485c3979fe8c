"""Somebody's tensor as Triton takes it: an address with an element type, beside shape and strides."""

from typing import Any

from msgspec import Struct

from mlbackends.sdpa.describe import is_torch


class Operand(Struct, frozen=True, eq=False):
    """A tensor in a device's memory. Strides count elements. owner: keeps the memory while it lives.

    dtype: by torch's name; Triton reads the text behind the last dot of `str(dtype)`.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    owner: object

    def data_ptr(self) -> int:
        """Return the address; by this name Triton knows a pointer."""
        return self.pointer

    def steps(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides by which it repeats to a larger shape, 0 along what repeats."""
        missing = len(shape) - len(self.shape)
        own = zip(self.shape, self.strides, strict=True)
        return (*[0] * missing, *(0 if size == 1 else step for size, step in own))


_BOOLEAN = "|b1"


def operand(tensor: Any) -> Operand:
    """Return a tensor of torch, or whatever another library has on a device, without a copy.

    Raises TypeError for element types that no kernel here computes with. Work that is under way on
    another library's stream is waited for; torch's own stream is the one that is launched on.
    """
    if is_torch(tensor):
        shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
        name = str(tensor.dtype).removeprefix("torch.")
        return Operand(
            int(tensor.data_ptr()), shape, strides, name, int(tensor.device.index or 0), tensor
        )
    interface = getattr(tensor, "__cuda_array_interface__", None)
    if interface and interface["typestr"] == _BOOLEAN:
        return _of_booleans(tensor, interface)
    from mlbackends_kernels.cuda.device_array import as_device_array

    array = as_device_array(tensor)
    return Operand(array.pointer, array.shape, array.strides, array.dtype, array.device, array)


def _of_booleans(tensor: object, interface: dict[str, Any]) -> Operand:
    """Return a tensor of booleans; `as_device_array` knows numbers alone."""
    from mlbackends_kernels.cuda import runtime
    from mlbackends_kernels.cuda.dlpack import packed_strides

    shape = tuple(interface["shape"])
    pointer = int(interface["data"][0] or 0)
    device = runtime.device_of(pointer) if pointer else runtime.current_device()
    stream = interface.get("stream")
    if stream not in {None, runtime.LEGACY_STREAM}:
        with runtime.on_device(device):
            runtime.synchronize(stream)
    strides = interface.get("strides") or packed_strides(shape)
    return Operand(pointer, shape, tuple(strides), "bool", device, tensor)
