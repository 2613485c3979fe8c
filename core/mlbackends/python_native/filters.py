"""What is switched off: DSLs, operations and dispatch keys.

An override takes part in dispatch if its DSL, its operation and its dispatch key are all on, so
switching an operation on does not bring back a DSL that is off. The state is the process's: every
thread sees the same, and reads need no lock. Names are not checked here: see `known_names`.
"""

from __future__ import annotations

import os
from _thread import RLock, get_ident
from contextlib import contextmanager

from mlbackends.python_native import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DSL, OPERATION, DISPATCH_KEY = "DSL", "operation", "dispatch key"
"""The three kinds of thing that can be switched off."""

_JIT_DSLS = frozenset({"cutedsl", "triton"})
"""The DSLs that compile as they go, and that TORCH_DISABLE_NATIVE_JIT takes out."""

_lock = RLock()
#: What is off -> who keeps it so: the thread that switched it off for good, and each open scope.
#: Replaced as a whole, never changed: a reader sees one state.
_off: dict[tuple[str, str], frozenset[object]] = {}


def disable(kind: str, names: Iterable[str]) -> None:
    """Switch names of one kind off, until they are switched on again."""
    _hold(kind, names, get_ident())


def enable(kind: str, names: Iterable[str]) -> None:
    """Switch names of one kind on, whoever switched them off."""
    global _off  # noqa: PLW0603  replaced as a whole, under the lock
    with _lock:
        wanted = {(kind, name) for name in names}
        _off = {what: holders for what, holders in _off.items() if what not in wanted}


@contextmanager
def disabled(kind: str, names: Iterable[str]) -> Iterator[None]:
    """Switch names off for the body; what was on before, and only that, is on again afterwards.

    Where scopes of several threads overlap, a name stays off until the last of them ends.
    """
    global _off  # noqa: PLW0603  replaced as a whole, under the lock
    names, scope = tuple(names), object()
    with _lock:
        were_on = {name for name in names if is_on(kind, name)}
        _hold(kind, names, scope)
    try:
        yield
    finally:
        with _lock:
            state = dict(_off)
            for name in names:
                gone = {scope}
                if name in were_on:
                    # As in torch, what the body itself switched off comes back with the scope.
                    gone.add(get_ident())
                if rest := state.pop((kind, name), frozenset()) - gone:
                    state[kind, name] = rest
            _off = state


def is_on(kind: str, name: str) -> bool:
    """Tell whether nobody switched a name of one kind off."""
    return (kind, name) not in _off


def is_enabled(dsl: str, op_symbol: str, dispatch_key: str) -> bool:
    """Tell whether the kernels that a DSL has for an operation take part in dispatch.

    dsl: "" for a kernel of no DSL. That is the native one, which nothing here switches off.
    """
    if not dsl:
        return True
    off = _off
    return not (
        (DSL, dsl) in off
        or (OPERATION, op_symbol) in off
        or (DISPATCH_KEY, dispatch_key) in off
        or (dsl in _JIT_DSLS and environment.is_one(environment.DISABLE_JIT))
    )


def why_disabled(dsl: str, op_symbol: str, dispatch_key: str) -> str:
    """Return what switched the kernels off that a DSL has for an operation; "" where they are on.

    Names everything that did: they run once all of it is undone.
    """
    if is_enabled(dsl, op_symbol, dispatch_key):
        return ""
    off = _off
    said = []
    if (DSL, dsl) in off:
        said.append(f"the DSL {dsl} is switched off by python_native.{dsl}")
    if (OPERATION, op_symbol) in off:
        said.append(f"the operation {op_symbol} is switched off by python_native")
    if (DISPATCH_KEY, dispatch_key) in off:
        said.append(f"the dispatch key {dispatch_key} is switched off by python_native")
    if dsl in _JIT_DSLS and environment.is_one(environment.DISABLE_JIT):
        said.append(f"the DSL {dsl} is switched off by {environment.DISABLE_JIT}=1")
    return "; ".join(said)


def _hold(kind: str, names: Iterable[str], holder: object) -> None:
    global _off  # noqa: PLW0603  replaced as a whole, under the lock
    with _lock:
        state = dict(_off)
        for name in names:
            state[kind, name] = state.get((kind, name), frozenset()) | {holder}
        _off = state


def _after_fork() -> None:
    """Give a child a lock of its own: a thread that held ours does not exist there."""
    global _lock  # noqa: PLW0603
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
