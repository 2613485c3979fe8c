"""Tensors of any library as numpy arrays, without a copy where possible, and results back.

A bfloat16 tensor becomes an array of its 16-bit patterns (uint16); see `arithmetic`. No library but numpy is
imported: the library of a tensor is already loaded.
"""

import sys
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.describe import describe, dtype_name, is_torch
from mlbackends_kernels.tensors import arithmetic
from mlbackends_kernels.tensors.arithmetic import numpy


def as_array(tensor: Any) -> Any:
    """Return the values of a tensor as an array of the same shape, in native byte order.

    It shares memory with a CPU tensor; a GPU tensor is copied. Raises TypeError for other objects, and
    RuntimeError for a torch tensor whose storage has been freed.
    """
    np = numpy()
    if is_torch(tensor):
        return _of_torch(tensor)
    if _is_device_array(tensor):
        is_bfloat16 = tensor.dtype == "bfloat16"  # NumPy lacks bfloat16: copy its bits
        array = (tensor.as_type("float16") if is_bfloat16 else tensor).numpy()
        return array.view(np.uint16) if is_bfloat16 else array
    if isinstance(tensor, np.ndarray):
        array = np.asarray(tensor)
    elif hasattr(tensor, "get") and hasattr(tensor, "__cuda_array_interface__"):
        array = tensor.get()  # CuPy's copy to the host
    elif hasattr(tensor, "__array__") or not hasattr(tensor, "__dlpack__"):
        array = np.asarray(tensor)
    else:
        array = np.from_dlpack(tensor)
    if _is_bfloat16(array.dtype):
        return array.view(np.uint16)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _is_device_array(tensor: Any) -> bool:
    return type(tensor).__module__ == "mlbackends_kernels.cuda.device_array"


@lru_cache(maxsize=64)
def _is_bfloat16(dtype: Any) -> bool:
    return bool(dtype.name == "bfloat16")  # cached, since numpy builds the name each time


def like(original: Any, array: Any, dtype: str = "") -> Any:
    """Return an array as a tensor of the same kind as the original, on its device.

    dtype: of the array's elements, by default the original's; bfloat16 is given as patterns. For a kind of
    tensor that cannot be made from an array the array itself is returned, for a buffer a memoryview.
    """
    np = numpy()
    if not hasattr(original, "dtype"):
        return memoryview(array)
    dtype = dtype or dtype_name(original.dtype)
    if is_torch(original):
        torch: Any = sys.modules["torch"]
        if dtype == "bfloat16":
            return torch.from_dlpack(array.view("int16")).view(torch.bfloat16).to(original.device)
        return torch.from_dlpack(array).to(original.device)
    if _is_device_array(original):
        to_device = sys.modules[type(original).__module__].to_device
        bits = array.view("float16") if dtype == "bfloat16" else array
        result = to_device(bits, original.device, original.stream)
        return result.as_type(dtype) if dtype == "bfloat16" else result
    if dtype == "bfloat16":
        array = array.view(np.dtype(original.dtype))
    if isinstance(original, np.ndarray):
        return array
    if hasattr(original, "__array_namespace__"):
        return original.__array_namespace__().asarray(array)
    module = sys.modules.get(type(original).__module__.partition(".")[0])
    return module.asarray(array) if module is not None and hasattr(module, "asarray") else array


def widened(array: Any, dtype: str, to: str) -> Any:
    """Return an array, which `as_array` made from a tensor of `dtype`, in another floating-point type.

    It is the same array if the types are equal.
    """
    if dtype == "bfloat16":
        array = arithmetic.bfloat16_to_float32(array)
    with numpy().errstate(all="ignore"):
        return array.astype(to, copy=False)


def narrowed(array: Any, dtype: str) -> Any:
    """Return floating-point numbers rounded to `dtype`; bfloat16 as patterns."""
    with numpy().errstate(all="ignore"):  # numbers that are too large become infinite
        if dtype == "bfloat16":
            return arithmetic.bfloat16_from_float32(array.astype("float32", copy=False))
        return array.astype(dtype, copy=False)


def drawn_seed(tensor: Any) -> int:
    """Return a random seed from the generator of a tensor's library: torch's or NumPy's."""
    if is_torch(tensor):
        torch: Any = sys.modules["torch"]
        return int(torch.randint(0, 2**63 - 1, (), device="cpu"))
    return int(numpy().random.randint(0, 2**63 - 1, dtype="int64"))  # seeded by numpy.random.seed


def seeded(problem: AttentionProblem, tensor: Any) -> AttentionProblem:
    """Return a problem with a seed, which is drawn if dropout needs one and none is given."""
    if 0 < problem.dropout < 1 and problem.seed is None:
        return replace(problem, seed=drawn_seed(tensor))
    return problem


def zeros_like(original: Any, shape: tuple[int, ...], dtype: str = "") -> Any:
    """Return a tensor of zeros with another shape, of the original's library and device.

    dtype: by default the original's.
    """
    if is_torch(original):
        element = getattr(sys.modules["torch"], dtype) if dtype else original.dtype
        return original.new_zeros(shape, dtype=element)
    ours = sys.modules.get("mlbackends_kernels.cuda.device_array")
    if ours is not None and isinstance(original, ours.DeviceArray):
        return ours.zeros(shape, dtype or original.dtype, original.device, original.stream)
    np = numpy()
    dtype = dtype or describe(original).dtype
    return like(original, np.zeros(shape, "uint16" if dtype == "bfloat16" else dtype), dtype)


def _of_torch(tensor: Any) -> Any:
    np = numpy()
    torch = sys.modules["torch"]
    tensor = tensor.detach()
    if not tensor.untyped_storage().nbytes() and tensor.numel():
        raise RuntimeError("the storage of a tensor has been freed: it has elements but no memory")
    is_bfloat16 = tensor.dtype == torch.bfloat16
    try:
        array = (tensor.view(torch.int16) if is_bfloat16 else tensor).numpy()
    except (RuntimeError, TypeError):  # on a device, lazily conjugated or zero, or of a torch without numpy
        tensor = tensor.cpu().resolve_conj().resolve_neg()
        if tensor._is_zerotensor():  # noqa: SLF001  there is no public name
            tensor = tensor.clone()  # allocates memory
        array = np.from_dlpack(tensor.view(torch.int16) if is_bfloat16 else tensor)
    return array.view(np.uint16) if is_bfloat16 else array
