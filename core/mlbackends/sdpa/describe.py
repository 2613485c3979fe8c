"""The TensorSpec and the Device of a caller's tensor, without touching its values.

It may be an array of numpy, a tensor of torch, anything with `__dlpack__` or `__cuda_array_interface__`
beside a shape and a dtype (JAX, CuPy), or a buffer. No library is imported for it: the one that made the
tensor is in the process already.
"""

import sys
from functools import lru_cache
from typing import Any

from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.model.problem import TensorSpec, contiguous_strides
from mlbackends.model.records import Device

#: Element types by the codes of the struct module, and of numpy for complex numbers.
_FORMATS = {
    "?": "bool", "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128",
    "b": "int8", "h": "int16", "i": "int32", "l": "int64", "q": "int64",
    "B": "uint8", "H": "uint16", "I": "uint32", "L": "uint64", "Q": "uint64",
}  # fmt: skip
#: DLPack's numbers of kinds of devices. Source: dlpack.h, DLDeviceType.
_DLPACK_KINDS = {
    1: "cpu", 2: "cuda", 3: "cpu", 8: "mps", 10: "rocm", 11: "cpu", 13: "cuda", 14: "xpu",
}  # fmt: skip


def is_tensor(value: object) -> bool:
    """Tell whether `describe` understands it."""
    if is_torch(value):
        return True
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
    if isinstance(value, bytes | bytearray):
        return False
    try:
        memoryview(value).release()  # type: ignore[arg-type]
    except (TypeError, BufferError, ValueError):
        return False
    return True


def is_torch(value: object) -> bool:
    """Tell whether it is a tensor of the torch that is in this process."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def is_number(value: object) -> bool:
    """Tell whether it is a real number: Python's, one of numpy's, or a torch tensor of no dimension."""
    if isinstance(value, int | float):
        return True
    if is_torch(value):
        return getattr(value, "ndim", 1) == 0
    # numpy's scalars have an element type as its arrays do, and no items to set.
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind in {"f", "i", "u"} and not hasattr(value, "__setitem__")


def describe(tensor: Any) -> TensorSpec:
    """Return the record of a tensor.

    Raises TypeError for what is none, RuntimeError for a sparse one.
    """
    if is_torch(tensor):
        return _of_torch(tensor)
    if not is_tensor(tensor):
        raise TypeError(f"{type(tensor).__name__} is no tensor: it has no shape and element type")
    if not hasattr(tensor, "dtype"):
        view = memoryview(tensor)
        dtype = _FORMATS.get(view.format.lstrip("@=<>!"))
        foreign = ">!" if sys.byteorder == "little" else "<"
        if dtype is None or view.format[:1] in foreign:
            message = f"elements of the format {view.format!r} are none that is computed with"
            raise TypeError(message)
        steps = _in_elements(view.strides or (), view.itemsize)
        return TensorSpec(view.shape or (), dtype, steps, device="cpu")
    shape = tuple(map(int, tensor.shape))
    strides, item_bytes = getattr(tensor, "strides", None), getattr(tensor.dtype, "itemsize", 0)
    if isinstance(strides, tuple) and item_bytes:  # in bytes, as numpy and CuPy have them
        strides = _in_elements(strides, item_bytes)
        if shape[-1:] == (1,):  # NumPy gives a dimension of one element any stride
            strides = (*strides[:-1], 1)
    else:
        strides = contiguous_strides(shape)
    device = "cuda:0" if hasattr(tensor, "__cuda_array_interface__") else "cpu"
    if hasattr(tensor, "__dlpack_device__"):
        kind, index = tensor.__dlpack_device__()
        if int(kind) not in _DLPACK_KINDS:
            raise TypeError(f"the tensor lies on a device of the unknown kind {int(kind)}")
        platform = _DLPACK_KINDS[int(kind)]
        device = platform if platform == "cpu" else f"{platform}:{index}"
    return TensorSpec(shape, dtype_name(tensor.dtype), strides, device)


@lru_cache(maxsize=256)
def dtype_name(dtype: object) -> str:
    """Return torch's name of an element type. Raises TypeError for one that torch has not."""
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]  # torch says torch.float32
    if name not in ITEM_BYTES:
        raise TypeError(f"elements of type {name} are none that is computed with")
    return name


def without_gradients() -> bool:
    """Tell whether the torch in this process records no operations for gradients now."""
    torch: Any = sys.modules.get("torch")
    return hasattr(torch, "is_grad_enabled") and not torch.is_grad_enabled()


def device_of(tensor: Any, spec: TensorSpec) -> Device:
    """Return the record of the device of a described tensor, with the facts that backends depend on."""
    platform, _, index = spec.device.partition(":")
    number = int(index or 0)
    if is_torch(tensor) and platform == "cuda":
        major, minor = sys.modules["torch"].cuda.get_device_capability(number)
        return Device("cuda", number, capability=f"{major}.{minor}")
    if is_torch(tensor) and platform == "rocm":
        name = sys.modules["torch"].cuda.get_device_properties(number).gcnArchName
        return Device("rocm", number, capability=name.partition(":")[0])
    if platform == "cuda":
        return Device("cuda", number, capability=_capability_by_driver(number))
    return Device(platform, number)


def _capability_by_driver(index: int) -> str:
    """Return "9.0" for device `index` as this process counts, "" where it is not known."""
    import ctypes

    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        numbers = []
        for attribute in (75, 76):  # COMPUTE_CAPABILITY_MAJOR and _MINOR
            value = ctypes.c_int(-1)
            if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, index):
                return ""
            numbers.append(str(value.value))
    except (OSError, AttributeError):
        return ""
    return ".".join(numbers)


def _of_torch(tensor: Any) -> TensorSpec:
    place = tensor.device
    hip = getattr(sys.modules["torch"].version, "hip", None)
    platform = "rocm" if hip and place.type == "cuda" else str(place.type)
    device = platform if place.index is None else f"{platform}:{place.index}"
    dtype, needs_gradient = dtype_name(tensor.dtype), tensor.requires_grad
    if tensor.is_nested:
        sizes = []
        for dimension in range(tensor.dim()):
            try:
                sizes.append(int(tensor.size(dimension)))
            except (AttributeError, RuntimeError, TypeError, ValueError):
                sizes.append(0)  # they differ in the batch
        return TensorSpec(
            tuple(sizes), dtype, device=device, requires_grad=needs_gradient, nested=True
        )
    if str(tensor.layout) != "torch.strided":
        raise RuntimeError(f"a tensor must be strided; this one is {tensor.layout}")
    return TensorSpec(
        tuple(map(int, tensor.shape)),
        dtype,
        strides=tuple(map(int, tensor.stride())),
        device=device,
        requires_grad=needs_gradient,
        storage_offset=int(tensor.storage_offset()),
    )


def _in_elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    # Rounded up: in a field of packed records no two elements lie side by side.
    return tuple([-(-stride // itemsize) for stride in strides])
