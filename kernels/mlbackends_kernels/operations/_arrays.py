"""Operands in the host's memory, in the type in which they are computed with, and results back.

16-bit numbers are computed with as float32 and rounded once, at the end.
"""

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from mlbackends.sdpa.describe import describe, refuse_unreadable_one, without_gradients
from mlbackends_kernels.cuda.device_array import is_on_device
from mlbackends_kernels.tensors.arithmetic import numpy
from mlbackends_kernels.tensors.interchange import as_array, like, narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

NARROW = ("bfloat16", "float16")
#: Starts of types that tensors may have, and NumPy does not compute with.
_WITHOUT_ARITHMETIC = ("float8_", "complex32")


class Operand(NamedTuple):
    """An array to compute with, and the element type that its owner gave it."""

    array: "NDArray[Any]"
    dtype: str


def quiet(function: "Callable[Parameters, Result]") -> "Callable[Parameters, Result]":
    """Return a function in which NumPy says nothing of infinities and of what is no number.

    They are results like any other, as in torch. Raises MlBackendsError without NumPy.
    """

    @wraps(function)
    def run(*args: "Parameters.args", **kwargs: "Parameters.kwargs") -> "Result":
        with numpy().errstate(all="ignore"):
            return function(*args, **kwargs)

    return run


def operand(operation: str, name: str, tensor: Any) -> Operand:
    """Return somebody's tensor as an operand. operation, name: what to call them in a message.

    Raises TypeError for what is no tensor of numbers, and RuntimeError for one on a CUDA device, for
    one whose numbers cannot be read, and for one whose gradient torch records: it would be lost here.
    """
    refuse_unreadable_one(f"{operation}(): {name}", tensor)
    if is_on_device(tensor):
        raise RuntimeError(f"{name} lies on a CUDA device; {operation}() takes arrays in memory")
    try:
        spec = describe(tensor)
    except TypeError as error:
        raise TypeError(f"{operation}(): {name}: {error}") from None
    if spec.dtype.startswith(_WITHOUT_ARITHMETIC):
        raise TypeError(f"{operation}(): {name}: nothing here computes with {spec.dtype}")
    if spec.nested:
        raise RuntimeError(f"{operation}(): {name} is a nested tensor; give plain ones")
    if spec.requires_grad and not without_gradients():
        message = (
            f"{name} requires grad, and {operation}() has no backward; use it under torch.no_grad()"
        )
        raise RuntimeError(message)
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
            message = f"{name} is {dtypes[name]}, and {first} is {dtypes[first]}"
            raise RuntimeError(f"all must have one dtype: {message}")
    return dtypes[first]
