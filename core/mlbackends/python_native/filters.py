"""What is switched off: DSLs, operations and dispatch keys.

An override takes part in dispatch if its DSL, its operation and its dispatch key are all on, so
switching an operation on does not bring back a DSL that is off. The state is the process's: every
thread sees the same, and reads need no lock. Names are not checked here: see `overrides.checked`.
Source: torch 2.15, torch/_native.
"""

import os
from _thread import RLock, get_ident
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from mlbackends.python_native.dsls import DSLS
from mlbackends.switches import store

#: The three kinds of thing that can be switched off.
DSL, OPERATION, DISPATCH_KEY = "DSL", "operation", "dispatch key"

_KEY_OF_PLATFORM = {
    "cpu": "CPU", "cuda": "CUDA", "hpu": "HPU", "mps": "MPS", "mtia": "MTIA", "tpu": "XLA", "xpu": "XPU",
    "rocm": "CUDA",  # torch for ROCm keeps the name
}  # fmt: skip

#: Held while filters or overrides are changed.
lock = RLock()
#: What is off -> who switched it off: a thread, until it is switched on again, or an open scope.
#: Replaced as a whole, never changed: a reader sees one state.
_off: dict[tuple[str, str], frozenset[object]] = {}


def key_of_platform(platform: str) -> str:
    """Return the dispatch key of plain tensors on a kind of device; PrivateUse1 for one unknown to torch."""
    return _KEY_OF_PLATFORM.get(platform, "PrivateUse1")


def disable(kind: str, names: Iterable[str], holder: object = None) -> None:
    """Switch names of one kind off, until they are switched on again."""
    global _off  # noqa: PLW0603  replaced as a whole, under the lock
    with lock:
        state = dict(_off)
        for name in names:
            state[kind, name] = state.get((kind, name), frozenset()) | {holder or get_ident()}
        _off = state


def enable(kind: str, names: Iterable[str]) -> None:
    """Switch names of one kind on, whoever switched them off."""
    global _off  # noqa: PLW0603  replaced as a whole, under the lock
    with lock:
        names_of_kind = {(kind, name) for name in names}
        _off = {what: holders for what, holders in _off.items() if what not in names_of_kind}


@contextmanager
def disabled(kind: str, names: Iterable[str]) -> Iterator[None]:
    """Switch names off for the body; what was on before, and only that, is on again afterwards.

    Where scopes of several threads overlap, a name stays off until the last of them ends.
    """
    global _off  # noqa: PLW0603  replaced as a whole, under the lock
    names, scope = tuple(names), object()
    with lock:
        were_on = {name for name in names if is_on(kind, name)}
        disable(kind, names, scope)
    try:
        yield
    finally:
        with lock:
            state = dict(_off)
            for name in names:
                # As in torch, what the body itself switched off comes back with the scope.
                ended = {scope, get_ident()} if name in were_on else {scope}
                if rest := state.pop((kind, name), frozenset()) - ended:
                    state[kind, name] = rest
            _off = state


def is_on(kind: str, name: str) -> bool:
    """Tell whether a name of one kind is not switched off."""
    return (kind, name) not in _off


def is_enabled(dsl: str, op_symbol: str, dispatch_key: str) -> bool:
    """Tell whether the kernels that a DSL has for an operation take part in dispatch.

    dsl: "" for the native kernel, which nothing here switches off.
    """
    return not why_disabled(dsl, op_symbol, dispatch_key)


def why_disabled(dsl: str, op_symbol: str, dispatch_key: str) -> str:
    """Return what switched off the kernels that a DSL has for an operation; "" where they are on.

    Names everything that did: they run once all of it is undone.
    """
    if not dsl:
        return ""
    off, reasons = _off, []
    names = {DSL: dsl, OPERATION: op_symbol, DISPATCH_KEY: dispatch_key}
    for kind, name in names.items():
        if (kind, name) in off:
            place = f"python_native.{dsl}" if kind == DSL else "python_native"
            reasons.append(f"the {kind} {name} is switched off by {place}")
    if dsl in DSLS and store.read("python_native.disabled"):
        reasons.append(f"the DSL {dsl} is switched off by TORCH_DISABLE_NATIVE_JIT=1")
    return "; ".join(reasons)


if hasattr(os, "register_at_fork"):
    # A thread that held the lock does not exist in the child.
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001
