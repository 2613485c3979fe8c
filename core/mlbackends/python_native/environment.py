"""The environment variables that torch's native overrides obey; ours obey the same.

Each switch is read once a process, as torch does.
Source: torch 2.13, torch/_native.
"""

from __future__ import annotations

import os
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DISABLE_JIT = "TORCH_DISABLE_NATIVE_JIT"
SKIP_VERSION_CHECK = "TORCH_NATIVE_SKIP_VERSION_CHECK"
ORDER_FUNCTION = "TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN"


@cache
def is_one(name: str) -> bool:
    """Tell whether a switch is "1"; one that is neither "0" nor "1" is warned of and ignored."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        import warnings

        warnings.warn(
            f"Ignoring invalid value for boolean flag {name}: {value!r}; valid values are 0 or 1.",
            stacklevel=2,
        )
    return value == "1"


def order_function() -> Callable[..., Any] | None:
    """Return the function that orders the overrides, as "package.module.function" names it.

    Raises ValueError where that is no function which can be imported.
    """
    path = os.environ.get(ORDER_FUNCTION, "")
    if not path:
        return None
    from importlib import import_module

    module, _, name = path.rpartition(".")
    try:
        function = getattr(import_module(module), name)
    except Exception as error:
        raise ValueError(
            f"{ORDER_FUNCTION} is {path!r}, which cannot be imported: {error}"
        ) from error
    if not callable(function):
        raise ValueError(  # noqa: TRY004  torch's type: the variable's value is what is wrong
            f"{ORDER_FUNCTION} is {path!r}, which is a {type(function).__name__}, not a function"
        )
    return function  # type: ignore[no-any-return]
