"""Operands in the host's memory, in the type in which they are computed with, and results back.

16-bit numbers are computed with as float32 and rounded once, at the end.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends.kernels.cuda.device_array import is_on_device
from mlbackends.kernels.tensors.interchange import as_array, like, narrowed, widened
from mlbackends.sdpa.describe import describe, without_gradients

if TYPE_CHECKING:
    from numpy.typing import NDArray

NARROW = ("bfloat16", "float16")


class Operand(NamedTuple):
    """An array to compute with, and the element type that its owner gave it."""

    array: "NDArray[Any]"
    dtype: str


def operand(name: str, tensor: Any) -> Operand:
    """Return somebody's tensor as an operand. name: what to call it in a message.

    Raises TypeError for what is no tensor, and RuntimeError for one on a CUDA device and for one
    whose gradient torch records: it would be lost here.
    """
    if is_on_device(tensor):
        raise RuntimeError(f"{name} lies on a CUDA device; this takes arrays in memory")
    spec = describe(tensor)
    if spec.requires_grad and not without_gradients():
        said = f"{name} requires grad, and this has no backward; use it under torch.no_grad()"
        raise RuntimeError(said)
    array = as_array(tensor)
    if spec.dtype in NARROW:
        array = widened(array, spec.dtype, "float32")
    return Operand(array, spec.dtype)


def returned(original: Any, array: "NDArray[Any]", dtype: str) -> Any:
    """Return a result as the same kind of tensor as the original. dtype: that of the operands."""
    import numpy as np

    return like(
        original, narrowed(np.asarray(array), dtype) if dtype in NARROW else np.asarray(array)
    )


def common_dtype(dtypes: dict[str, str]) -> str:
    """Return the one type of all operands, given the type of each by its name.

    Raises RuntimeError for two: a silent change of type would pass by the switches.
    """
    first, *others = dtypes
    for name in others:
        if dtypes[name] != dtypes[first]:
            said = f"{name} is {dtypes[name]}, and {first} is {dtypes[first]}"
            raise RuntimeError(f"all must have one dtype: {said}")
    return dtypes[first]
