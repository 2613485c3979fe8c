"""What the files in kernels/ override, registered once, when somebody first asks.

A file of operations that cannot be imported offers nothing: what it stands on is not installed.
"""

from __future__ import annotations

import os
import threading
from _thread import RLock
from functools import cache
from typing import TYPE_CHECKING

from mlbackends.model import registry
from mlbackends.python_native import dsl_registry, environment, override_graph
from mlbackends.python_native.declarations import Override
from mlbackends.python_native.dsls import NATIVE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ATTENTION = "scaled_dot_product_attention"
"""The operation of every attention backend."""

_lock = RLock()
_begun: list[bool] = []
_registered = threading.Event()


def register() -> None:
    """Register the overrides of kernels/operations, then order them as the user's function wants.

    Raises ValueError where TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN names no function.
    """
    if _registered.is_set():
        return
    # Imports are made without the lock: a module on its way in may ask for the same things.
    order, overrides = environment.order_function(), declared_overrides()
    with _lock:
        if _begun:  # by another thread, which is done; or by this one, and a DSL asks back
            return
        _begun.append(True)
        complaints = [_complaint(entry, override) for entry, override in overrides]
        if order is not None:
            override_graph.reorder_graphs_from_user_function(order)
        _registered.set()
    for said in filter(None, complaints):
        _warn(said)


@cache
def declared_overrides() -> tuple[tuple[str, Override], ...]:
    """Return every override that a file in kernels/operations declares, behind the file's name."""
    return tuple(
        (module.__name__, override) for module in _files() for override in _overrides_of(module)
    )


def attention_dsls() -> frozenset[str]:
    """Return the DSLs that some attention backend in kernels/ is written in."""
    from mlbackends.sdpa import dispatch

    return frozenset(backend.dsl for backend in dispatch.backends() if backend.dsl)


def _complaint(entry: str, override: Override) -> str:
    """Register an override through its DSL, which leaves out what cannot run; say what is wrong."""
    arguments = (override.op_symbol, override.dispatch_key, override.condition, override.run)
    always = override.condition is None
    try:
        if override.dsl == NATIVE:
            override_graph.register_op_override(
                NATIVE, "aten", *arguments, unconditional_override=always
            )
        elif dsl := dsl_registry.get_dsl_module(override.dsl):
            dsl.register_op_override("aten", *arguments, unconditional_override=always)
        else:
            return f"{entry}: there is no DSL named {override.dsl!r}; its override is left out"
    except (ValueError, TypeError, LookupError) as error:
        return f"{entry}: its override of {override.op_symbol!r} is left out: {error}"
    return ""


def _overrides_of(module: ModuleType) -> Iterator[Override]:
    declared = getattr(module, "OVERRIDES", ())
    if not isinstance(declared, tuple | list):
        _warn(f"{module.__name__}: OVERRIDES must be a tuple, got {type(declared).__name__}")
        return
    for each in declared:
        if isinstance(each, Override):
            yield each
        else:
            _warn(f"{module.__name__}: OVERRIDES holds a {type(each).__name__}, not an Override")


def _files() -> Iterator[ModuleType]:
    """Yield each file of kernels/operations that can be imported."""
    for name in registry.names("mlbackends_kernels.operations"):
        try:
            yield registry.load("mlbackends_kernels.operations", name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] == "mlbackends":
                raise


def _warn(said: str) -> None:
    import warnings

    warnings.warn(said, stacklevel=2)


def _after_fork() -> None:
    """Give a child a lock of its own: a thread that held ours does not exist there."""
    global _lock  # noqa: PLW0603
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
