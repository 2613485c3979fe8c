"""The overrides of each operation at each dispatch key, in the order in which they are asked.

A graph is what torch calls the list of overrides that an operation has at one dispatch key. A call
goes to the first of them that is switched on and whose condition holds, else to the native kernel.
Graphs are the process's. A call under way keeps the graph that it began with.
"""

from __future__ import annotations

import os
from _thread import RLock
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mlbackends.python_native import filters
from mlbackends.python_native.dispatch_keys import DISPATCH_KEYS, NOT_OVERRIDABLE
from mlbackends.python_native.wrong_names import unknown

if TYPE_CHECKING:
    from collections.abc import Callable

_lock = RLock()
_graphs: dict[tuple[str, str], tuple[OverrideNode, ...]] = {}
_registered = 0


class OverrideNode(Struct, frozen=True, eq=False):
    """One override. The names are torch's, so that a user's ordering function reads both.

    node_id: the operation, the DSL and a number that is never used again.
    """

    dsl_name: str
    op_symbol: str
    dispatch_key: str
    cond_fn: Any
    impl_fn: Any
    node_id: str
    unconditional_override: bool = False

    @property
    def active(self) -> bool:
        """Whether neither its DSL nor its operation nor its dispatch key is switched off."""
        return filters.is_enabled(self.dsl_name, self.op_symbol, self.dispatch_key)


def register_op_override(
    backend: str,
    lib_symbol: str,
    op_symbol: str,
    dispatch_key: str,
    cond: Callable[..., object] | None,
    impl: Callable[..., Any],
    *,
    allow_multiple_override: bool = False,
    unconditional_override: bool = False,
) -> None:
    """Add an override behind those that the operation has at that dispatch key.

    backend: the name of the DSL. lib_symbol: "aten", the only library there is. cond: takes the
    arguments of the call; None with unconditional_override alone. allow_multiple_override: as in
    torch, taken and of no effect: there may always be several.

    Raises ValueError, UnknownName (a LookupError) for a dispatch key that torch does not have, and
    TypeError.
    """
    del allow_multiple_override
    names = {"backend": backend, "op_symbol": op_symbol, "dispatch_key": dispatch_key}
    for what, name in names.items():
        if not isinstance(name, str):
            raise TypeError(f"{what} must be a str, got {type(name).__name__}")
        if not name.strip():
            raise ValueError(f"{what} must not be blank")
    if lib_symbol != "aten":
        raise ValueError(f"lib_symbol must be 'aten', got {lib_symbol!r}")
    if dispatch_key in NOT_OVERRIDABLE:
        raise ValueError(
            f"nothing can be overridden at the dispatch key {dispatch_key!r}, where an override "
            "would call itself; it must be one of a device, such as 'CPU' or 'CUDA'"
        )
    if dispatch_key not in DISPATCH_KEYS:
        raise unknown(filters.DISPATCH_KEY, dispatch_key, DISPATCH_KEYS)
    if cond is None and not unconditional_override:
        raise ValueError("cond must be given unless unconditional_override is True")
    condition = _always if cond is None else cond
    for what, function in (("cond", condition), ("impl", impl)):
        if not callable(function):
            raise TypeError(f"{what} must be a function, got {type(function).__name__}")
    _add(backend, op_symbol, dispatch_key, condition, impl, unconditional_override)


def _add(
    dsl: str,
    op_symbol: str,
    dispatch_key: str,
    cond: Callable[..., object],
    impl: Callable[..., Any],
    unconditional: bool,
) -> None:
    global _registered  # noqa: PLW0603  a count of the process
    with _lock:
        node_id = f"{op_symbol.replace('.', '_')}_{dsl}_{_registered}"
        _registered += 1
        node = OverrideNode(dsl, op_symbol, dispatch_key, cond, impl, node_id, unconditional)
        _graphs[op_symbol, dispatch_key] = (*nodes(op_symbol, dispatch_key), node)


def nodes(op_symbol: str, dispatch_key: str) -> tuple[OverrideNode, ...]:
    """Return the overrides that an operation has at a dispatch key, switched off ones as well."""
    return _graphs.get((op_symbol, dispatch_key), ())


def every_node() -> list[OverrideNode]:
    """Return every override that is registered."""
    with _lock:
        return [node for graph in _graphs.values() for node in graph]


def reorder_graphs_from_user_function(
    fn: Callable[[str, str, list[OverrideNode]], object],
) -> None:
    """Let a function put each graph into another order, at once.

    fn: takes operation, dispatch key and the list of overrides; returns the list in its new order,
    without those that it wants no more. Where it raises, or returns anything else, that is logged,
    and the graph stays as it was.
    """
    for (op_symbol, dispatch_key), before in list(_graphs.items()):
        try:
            ordered = fn(op_symbol, dispatch_key, list(before))
        except Exception as error:  # noqa: BLE001  foreign code; the log says what it raised
            _log_kept(op_symbol, dispatch_key, f"the ordering function raised {error!r}", error)
            continue
        if not isinstance(ordered, list):
            said = f"the ordering function must return a list, got {type(ordered).__name__}"
            _log_kept(op_symbol, dispatch_key, said)
        elif not _is_taken_from(before, ordered):
            said = "the ordering function returned what it was not given, or one override twice"
            _log_kept(op_symbol, dispatch_key, said)
        else:
            with _lock:
                later = nodes(op_symbol, dispatch_key)[len(before) :]
                _graphs[op_symbol, dispatch_key] = (*ordered, *later)


def _is_taken_from(before: tuple[OverrideNode, ...], ordered: list[object]) -> bool:
    """Tell whether a list holds each of its items once, and nothing but items of the graph."""
    chosen = {id(each) for each in ordered}
    return len(chosen) == len(ordered) and chosen <= {id(node) for node in before}


def _log_kept(op_symbol: str, dispatch_key: str, said: str, error: Exception | None = None) -> None:
    import logging

    logging.getLogger(__name__).warning(
        "the order of the overrides of %s at %s stays as it was: %s",
        op_symbol,
        dispatch_key,
        said,
        exc_info=error,
    )


def _always(*args: object, **kwargs: object) -> bool:
    del args, kwargs
    return True


def _after_fork() -> None:
    """Give a child a lock of its own: a thread that held ours does not exist there."""
    global _lock  # noqa: PLW0603
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
