"""The TensorSpec and the Device of a caller's tensor, without reading its values.

A tensor is a numpy array, a torch tensor, an object with a shape, a dtype and `__dlpack__` or
`__cuda_array_interface__` (JAX, CuPy), or a buffer. No library is imported: the one that made the tensor is
already loaded.
"""

import sys
from functools import lru_cache
from typing import Any

from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.libraries.cuda import in_process
from mlbackends.model.problem import TensorSpec, contiguous_strides
from mlbackends.model.records import Device

#: Element types by their codes in the struct module, and in numpy for complex numbers.
_FORMATS = {
    "?": "bool", "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128",
    "b": "int8", "h": "int16", "i": "int32", "l": "int64", "q": "int64",
    "B": "uint8", "H": "uint16", "I": "uint32", "L": "uint64", "Q": "uint64",
}  # fmt: skip
#: Platforms by DLPack's device type. Source: dlpack.h, DLDeviceType.
_DLPACK_KINDS = {
    1: "cpu", 2: "cuda", 3: "cpu", 8: "mps", 10: "rocm", 11: "cpu", 13: "cuda", 14: "xpu",
}  # fmt: skip

_OUTSIDE = "call it outside of traced code (torch.compile breaks its graph there by itself)"
#: torch's modes in which a result would become a constant of the traced graph.
_TRACERS = ("FAKE", "FUNCTIONAL", "PROXY")


def is_tensor(value: object) -> bool:
    """Return whether `describe` accepts a value."""
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
    """Return whether a value is a tensor of the loaded torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def is_number(value: object) -> bool:
    """Return whether a value is a real number: Python's, numpy's, or a torch tensor without dimensions."""
    if isinstance(value, int | float):
        return True
    if is_torch(value):
        return getattr(value, "ndim", 1) == 0
    # numpy's scalars have an element type, as its arrays do, but no items to assign.
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind in {"f", "i", "u"} and not hasattr(value, "__setitem__")


def describe(tensor: Any) -> TensorSpec:
    """Return the record of a tensor. Raises TypeError for other objects, RuntimeError for sparse tensors."""
    if is_torch(tensor):
        return _of_torch(tensor)
    if not is_tensor(tensor):
        raise TypeError(f"{type(tensor).__name__} is not a tensor: it has no shape and element type")
    if not hasattr(tensor, "dtype"):
        view = memoryview(tensor)
        dtype = _FORMATS.get(view.format.lstrip("@=<>!"))
        foreign = ">!" if sys.byteorder == "little" else "<"
        if dtype is None or view.format[:1] in foreign:
            raise TypeError(f"elements of the format {view.format!r} are not supported")
        steps = _in_elements(view.strides or (), view.itemsize)
        return TensorSpec(view.shape or (), dtype, steps, device="cpu")
    shape = tuple(map(int, tensor.shape))
    strides, item_bytes = getattr(tensor, "strides", None), getattr(tensor.dtype, "itemsize", 0)
    if isinstance(strides, tuple) and item_bytes:  # in bytes, as numpy and CuPy have them
        strides = _in_elements(strides, item_bytes)
        if shape[-1:] == (1,):  # NumPy may give a dimension of size one any stride
            strides = (*strides[:-1], 1)
    else:
        strides = contiguous_strides(shape)
    device = "cuda:0" if hasattr(tensor, "__cuda_array_interface__") else "cpu"
    if hasattr(tensor, "__dlpack_device__"):
        kind, index = tensor.__dlpack_device__()
        if int(kind) not in _DLPACK_KINDS:
            raise TypeError(f"the tensor is on a device of the unknown DLPack type {int(kind)}")
        platform = _DLPACK_KINDS[int(kind)]
        device = platform if platform == "cpu" else f"{platform}:{index}"
    return TensorSpec(shape, dtype_name(tensor.dtype), strides, device)


@lru_cache(maxsize=256)
def dtype_name(dtype: object) -> str:
    """Return torch's name of an element type. Raises TypeError for a type that torch does not have."""
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]  # torch prints torch.float32
    if name not in ITEM_BYTES:
        raise TypeError(f"elements of type {name} are not supported")
    return name


def without_gradients() -> bool:
    """Return whether the loaded torch currently records no operations for gradients."""
    torch: Any = sys.modules.get("torch")
    return hasattr(torch, "is_grad_enabled") and not torch.is_grad_enabled()


def device_of(tensor: Any, spec: TensorSpec) -> Device:
    """Return the device of a described tensor, with the facts that backends depend on."""
    platform, _, index = spec.device.partition(":")
    number = int(index or 0)
    if is_torch(tensor) and platform == "cuda":
        major, minor = sys.modules["torch"].cuda.get_device_capability(number)
        return Device("cuda", number, capability=f"{major}.{minor}")
    if is_torch(tensor) and platform == "rocm":
        name = sys.modules["torch"].cuda.get_device_properties(number).gcnArchName
        return Device("rocm", number, capability=name.partition(":")[0])
    if platform == "cuda":
        known = in_process.capability(number)
        return Device("cuda", number, capability=f"{known[0]}.{known[1]}" if known else "")
    return Device(platform, number)


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
                sizes.append(0)  # it differs within the batch
        return TensorSpec(tuple(sizes), dtype, device=device, requires_grad=needs_gradient, nested=True)
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
    # Rounded up: in a field of packed records no two elements are adjacent.
    return tuple([-(-stride // itemsize) for stride in strides])


# ---- torch's transformations --------------------------------------------------------


def needs_operator(*tensors: Any) -> bool:
    """Return whether a call with these tensors must be an operator of torch's.

    That is so where torch records its gradients, or `is_transformed`.
    """
    torch: Any = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    if kind is None or not hasattr(torch, "library"):  # it is not there, or is being imported
        return False
    given = [tensor for tensor in tensors if isinstance(tensor, kind)]
    if not given:
        proxy = getattr(sys.modules.get("torch.fx"), "Proxy", ())
        return any(isinstance(tensor, proxy) for tensor in tensors)
    records = torch.is_grad_enabled() and torch._C._any_requires_grad(*given)  # noqa: SLF001
    return records or is_transformed(*given)


def is_transformed(*tensors: Any) -> bool:
    """Return whether torch traces, batches, casts or differentiates a call, whose tensors may lack values."""
    torch: Any = sys.modules["torch"]
    core = torch._C  # noqa: SLF001
    return bool(
        core._is_any_autocast_enabled()  # noqa: SLF001
        or core._are_functorch_transforms_active()  # noqa: SLF001
        or core._len_torch_dispatch_stack()  # noqa: SLF001
        or torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001
        or core._get_tracing_state() is not None  # noqa: SLF001
        or torch._ops._len_torch_dispatch_stack_pre_dispatch()  # noqa: SLF001
        or any(map(_is_without_storage, tensors))
    )


def _is_without_storage(tensor: Any) -> bool:
    """Return whether a tensor of torch stands for others, by its class or as a wrapper of theirs."""
    torch: Any = sys.modules["torch"]
    plain = torch.Tensor.__torch_dispatch__
    return (
        (type(tensor).__torch_dispatch__ is not plain and not tensor.is_nested)
        or torch._is_functional_tensor(tensor)  # noqa: SLF001
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001
    )
