"""Which backends and preprocess functions are known by which name.

Two tables, as in torch: a name can be lowered to once both have it. A name is registered once for the
life of the process. Any thread may register and look up.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mlbackends.jit.errors import JitError, suggestion
from mlbackends.jit.interface import BackendInterface

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.jit.debug_handles import DebugHandles

    Preprocess = Callable[[Any, dict[str, Any], DebugHandles], Any]
    Factory = Callable[[], BackendInterface]

_lock = threading.Lock()
_backends: dict[str, Factory] = {}
_preprocesses: dict[str, Preprocess] = {}


def register_backend(name: str, backend: Factory) -> None:
    """Register what makes the backend's instances: a subclass of BackendInterface, or a function.

    The function takes no argument and returns an instance of BackendInterface, at each lowering and
    each load. Raises TypeError for anything else (an instance, a class that lacks a method) and
    RuntimeError where the name is no identifier or is registered already.
    """
    _check_name(name)
    given: object = backend
    if isinstance(backend, type):
        if not issubclass(backend, BackendInterface):
            raise TypeError(f"{backend.__qualname__} is not a subclass of BackendInterface")
        missing: frozenset[str] = getattr(backend, "__abstractmethods__", frozenset())
        if missing:
            names = ", ".join(sorted(missing))
            raise TypeError(f"backend {backend.__qualname__} does not define {names}")
    elif isinstance(given, BackendInterface) or not callable(given):
        raise TypeError(
            "a backend is a subclass of BackendInterface or a function that makes an instance, "
            f"not {type(given).__name__}"
        )
    with _lock:
        if name in _backends:
            raise JitError(
                f"Backend {name} is already registered. Ensure that registration is only called once."
            )
        _backends[name] = backend


def register_preprocess(name: str, function: Preprocess) -> None:
    """Register the function that prepares a module for the backend, ahead of time.

    It is called as function(module, method_compile_spec, debug_handles) with a clone of the module
    that it may change, and returns the processed artefact, which must be picklable where the lowered
    module is to be saved. Raises RuntimeError where the name has one already.
    """
    _check_name(name)
    if not callable(function):
        raise TypeError(f"a preprocess function is callable, not {type(function).__name__}")
    with _lock:
        if name in _preprocesses:
            raise JitError(
                f"Preprocessing function for backend {name} is already registered. "
                "Ensure that registration is only called once."
            )
        _preprocesses[name] = function


def preprocess_of(name: str) -> Preprocess:
    """Return a backend's preprocess function; raises RuntimeError where there is none."""
    with _lock:
        function = _preprocesses.get(name)
        known = tuple(_preprocesses)
    if function is None:
        raise JitError(
            f"Preprocessing function for backend {name} is not registered.{suggestion(name, known)}"
        )
    return function


def check_registered(name: str) -> None:
    """Raise RuntimeError, with the nearest name, where no backend is registered so."""
    with _lock:
        known = tuple(_backends)
    if name not in known:
        raise JitError(f"Backend {name} is not registered.{suggestion(name, known)}")


def new_backend(name: str) -> BackendInterface:
    """Make an instance of a registered backend; raises RuntimeError where there is none."""
    check_registered(name)
    made = _backends[name]()  # entries are never taken out
    if not isinstance(made, BackendInterface):
        raise TypeError(
            f"the factory of backend {name} returned {type(made).__name__}, no BackendInterface"
        )
    return made


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a backend is a str, not {type(name).__name__}")
    if not name.isidentifier():
        raise JitError(f"the name of a backend is an identifier such as 'our_chip', not {name!r}")
