"""The name of an element type, however a test writes it: a text, or a dtype of torch or numpy."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OTHER_NAMES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}


def name_of_type(dtype: Any, more: tuple[str, ...] = ()) -> str:
    """Return "float16" for "half", torch.float16, numpy.float16 and numpy.dtype("float16").

    more: names that are taken too. Raises UnknownName, with the nearest, for what is no element type.
    """
    from mlbackends.model.errors import UnknownName
    from mlbackends.model.problem import ITEM_BYTES

    text = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    text = text.removeprefix("torch.").rstrip("_")
    # Python's own `float` is 64 bits to numpy and 32 to torch: only torch's texts have a meaning.
    name = text if isinstance(dtype, type) else _OTHER_NAMES.get(text, text)
    if name not in ITEM_BYTES and name not in more:
        raise UnknownName("element type", text, (*ITEM_BYTES, *more))
    return name
