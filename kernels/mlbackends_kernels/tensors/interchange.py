"""Tensors of any library as numpy arrays, without a copy where that can be, and results back.

A bfloat16 tensor comes as an array of its 16-bit patterns (uint16); see `bfloat16`. No library is
imported but numpy: one whose tensor we are handed is in the process already.
"""

import sys
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.describe import describe, dtype_name, is_torch
from mlbackends_kernels.tensors import bfloat16
from mlbackends_kernels.tensors.arithmetic import numpy


def as_array(tensor: Any) -> Any:
    """Return the values of a tensor as an array of the same shape, in native byte order.

    It shares memory with a tensor on the CPU; one on a GPU is copied. Raises TypeError for what is
    no tensor, RuntimeError for one of torch whose storage has been freed.
    """
    np = numpy()
    if is_torch(tensor):
        return _of_torch(tensor)
    if _is_device_array(tensor):
        is_bfloat16 = tensor.dtype == "bfloat16"  # which NumPy has not, but its bits
        found = (tensor.as_type("float16") if is_bfloat16 else tensor).numpy()
        return found.view(np.uint16) if is_bfloat16 else found
    if isinstance(tensor, np.ndarray):
        found = np.asarray(tensor)
    elif hasattr(tensor, "get") and hasattr(tensor, "__cuda_array_interface__"):
        found = tensor.get()  # CuPy's way to the host
    elif hasattr(tensor, "__array__") or not hasattr(tensor, "__dlpack__"):
        found = np.asarray(tensor)
    else:
        found = np.from_dlpack(tensor)
    if _is_bfloat16(found.dtype):
        return found.view(np.uint16)
    return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def _is_device_array(tensor: Any) -> bool:
    return type(tensor).__module__ == "mlbackends_kernels.cuda.device_array"


@lru_cache(maxsize=64)
def _is_bfloat16(dtype: Any) -> bool:
    return bool(dtype.name == "bfloat16")  # numpy makes the name up each time


def like(original: Any, array: Any, dtype: str = "") -> Any:
    """Return an array as the same kind of tensor as the original, on its device.

    array: of elements of `dtype`, left out, of the original's; for bfloat16 its patterns. A kind that
    offers no way to make one of it gets the array itself; a buffer gets a memoryview.
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
    """Return an array that `as_array` made of a tensor of `dtype` in another floating-point type.

    The same array where nothing is to be done.
    """
    if dtype == "bfloat16":
        array = bfloat16.to_float32(array)
    with numpy().errstate(all="ignore"):
        return array.astype(to, copy=False)


def narrowed(array: Any, dtype: str) -> Any:
    """Return floating-point numbers rounded to `dtype`, for bfloat16 as patterns."""
    with numpy().errstate(all="ignore"):  # what is too large becomes infinite
        if dtype == "bfloat16":
            return bfloat16.from_float32(array.astype("float32", copy=False))
        return array.astype(dtype, copy=False)


def drawn_seed(tensor: Any) -> int:
    """Return a number drawn from the generator that the owner of a tensor seeds: torch's or NumPy's."""
    if is_torch(tensor):
        torch: Any = sys.modules["torch"]
        return int(torch.randint(0, 2**63 - 1, (), device="cpu"))
    return int(numpy().random.randint(0, 2**63 - 1, dtype="int64"))  # what numpy.random.seed seeds


def seeded(problem: AttentionProblem, tensor: Any) -> AttentionProblem:
    """Return a problem with a seed, drawn for a tensor where dropout needs one and there is none."""
    if 0 < problem.dropout < 1 and problem.seed is None:
        return replace(problem, seed=drawn_seed(tensor))
    return problem


def zeros_like(original: Any, shape: tuple[int, ...], dtype: str = "") -> Any:
    """Return a tensor of zeros of another shape, of the original's kind and device.

    dtype: of its elements, left out, the original's.
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
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor._is_zerotensor():  # noqa: SLF001  it has no other name
        tensor = tensor.clone()  # until then it has no memory
    if tensor.numel() and not tensor.untyped_storage().nbytes():
        raise RuntimeError("a tensor's storage has been freed: it has elements, and no memory")
    if tensor.dtype == torch.bfloat16:
        return np.from_dlpack(tensor.view(torch.int16)).view(np.uint16)
    return np.from_dlpack(tensor)
