"""Overrides out of dispatch and back, by DSL, operation and dispatch key at once.

Source: torch 2.13, torch/_native/registry.py, for the names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.python_native import filters
from mlbackends.python_native.known_names import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def deregister_op_overrides(
    *,
    disable_dsl_names: str | Iterable[str] | None = None,
    disable_op_symbols: str | Iterable[str] | None = None,
    disable_dispatch_keys: str | Iterable[str] | None = None,
) -> None:
    """Switch names off, all or none: an unknown one raises UnknownName before anything changes."""
    _switch(filters.disable, disable_dsl_names, disable_op_symbols, disable_dispatch_keys)


def reenable_op_overrides(
    *,
    enable_dsl_names: str | Iterable[str] | None = None,
    enable_op_symbols: str | Iterable[str] | None = None,
    enable_dispatch_keys: str | Iterable[str] | None = None,
) -> None:
    """Switch names on, all or none: an unknown one raises UnknownName before anything changes."""
    _switch(filters.enable, enable_dsl_names, enable_op_symbols, enable_dispatch_keys)


def _switch(
    to: Callable[[str, Iterable[str]], None],
    dsls: str | Iterable[str] | None,
    operations: str | Iterable[str] | None,
    dispatch_keys: str | Iterable[str] | None,
) -> None:
    kinds = (filters.DSL, filters.OPERATION, filters.DISPATCH_KEY)
    given = zip(kinds, (dsls, operations, dispatch_keys), strict=True)
    for kind, names in [(kind, checked(kind, _each(names))) for kind, names in given]:
        to(kind, names)


def _each(names: str | Iterable[str] | None) -> tuple[object, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)
