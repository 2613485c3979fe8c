"""Return annotations that are text, as they are below `from __future__ import annotations`.

Names that exist for type checkers alone are no error: they accept anything.
"""

from __future__ import annotations

import builtins
import inspect
from typing import Any


def evaluate(text: str, function: Any) -> Any:
    """Return what an annotation of a function means, Any where it is no expression for a type."""
    plain = inspect.unwrap(getattr(function, "__func__", function))
    try:
        # It stands in the source of the method that is being lowered: its author's own code.
        return eval(text, {}, _Names(plain))  # noqa: S307
    except Exception:  # noqa: BLE001  any code can stand there; what it raises says it is no type
        return Any


class OfUnknown(type):
    """Lets `numpy.ndarray`, `Batch[int]` and `Batch | None` stand where the names are unknown."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, item: object) -> Any:
        return cls

    def __or__(cls, other: object) -> Any:
        return Any

    __ror__ = __or__


class _Unknown(metaclass=OfUnknown):
    """Stands for a class that is known to type checkers alone."""


class _Names(dict[str, Any]):
    """The names that a function sees, and _Unknown for all others."""

    def __init__(self, function: Any) -> None:
        super().__init__(vars(builtins))
        self.update(getattr(function, "__globals__", {}))
        cells = getattr(function, "__closure__", None) or ()
        free = getattr(getattr(function, "__code__", None), "co_freevars", ())
        for name, cell in zip(free, cells, strict=False):
            try:
                self[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue

    def __missing__(self, name: str) -> Any:
        return _Unknown
