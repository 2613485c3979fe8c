"""Backends: what they must offer, what they raise, and the names that they are registered under.

Two tables, as in torch: a name can be lowered to once it has a backend and a preprocess function. A
name is registered once for the life of the process. Any thread may register and look up.
"""

import inspect
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlbackends.base.errors import BadInput, MlBackendsError, nearest


class BackendInterface(ABC):
    """A compiler and a runtime for the methods of a lowered module.

    One instance is made for each module that is lowered, loaded or copied deeply. What an
    implementation raises reaches the caller as it is.
    """

    @abstractmethod
    def is_available(self) -> bool:
        """Return whether this backend can compile and execute in this process, now.

        Called twice when a module is lowered, once when one is loaded, and before every call.
        """

    @abstractmethod
    def compile(self, processed: Any, method_compile_spec: Mapping[str, Any]) -> dict[str, Any]:
        """Make what `execute` needs, and return one handle for each method of the spec.

        processed: what the preprocess function returned. Called once after lowering and once after
        each load; a handle is never saved.
        """

    @abstractmethod
    def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
        """Run one method and return the list of its outputs.

        inputs: every argument of the original method without `self`, in the order of its
        signature, defaults filled in. A method that returns a tuple has one output for each item;
        any other has exactly one.
        """


class DebugHandles:
    """What a preprocess function calls for the debug handles of a method's lines, as in torch."""

    #: Unique in the process.
    _numbers = itertools.count()

    def __call__(self, method: Any) -> dict[int, int]:
        """Return {line number: handle} for the lines of a function or bound method that hold code."""
        lines = {line for _, _, line in inspect.unwrap(method).__code__.co_lines() if line}
        return {line: next(self._numbers) for line in sorted(lines)}


# ---- errors, of the types that torch's JIT raises: nearly all are RuntimeErrors ----


class JitError(MlBackendsError, RuntimeError):
    """A registration, a lowering or a result of a backend is wrong."""


class NotAModule(MlBackendsError, AttributeError):
    """What was to be lowered is not an object with methods."""


class BackendNotAvailable(JitError):
    """The backend reports that it cannot run here: at a call, or when a lowered module is loaded."""

    exit_code = 1


class CallMismatch(JitError, TypeError):
    """The arguments of a call do not fit the signature of the lowered method."""


class BadOutput(JitError):
    """What a backend returned is not what the interface or the original method promises."""


class NotLoadable(BadInput, RuntimeError):
    """A file that holds no lowered module, a truncated one, or one of another version."""


# ---- registration -----------------------------------------------------------

Preprocess = Callable[[Any, dict[str, Any], DebugHandles], Any]
Factory = Callable[[], BackendInterface]

_lock = threading.Lock()
_backends: dict[str, Factory] = {}
_preprocesses: dict[str, Preprocess] = {}


def register_backend(name: str, backend: Factory) -> None:
    """Register what makes the backend's instances: a subclass of BackendInterface, or a function.

    The function takes no argument and returns an instance of BackendInterface, at each lowering and
    each load. Raises TypeError for anything else (an instance, a class that lacks a method) and
    RuntimeError if the name is not an identifier or is already registered.
    """
    candidate: object = backend
    if not callable(candidate) or (
        isinstance(candidate, type) and not issubclass(candidate, BackendInterface)
    ):
        raise TypeError(
            "a backend is a subclass of BackendInterface or a function that makes an instance,"
            f" not {backend!r}"
        )
    missing = sorted(getattr(backend, "__abstractmethods__", ()))
    if missing:
        raise TypeError(f"backend {backend!r} does not define {', '.join(missing)}")
    _register(_backends, name, backend, f"Backend {name}")


def register_preprocess(name: str, function: Preprocess) -> None:
    """Register the function that prepares a module for the backend, ahead of time.

    It is called as function(module, method_compile_spec, debug_handles) with a clone of the module
    that it may change, and returns the processed artefact, which must be picklable where the lowered
    module is to be saved. Raises RuntimeError where the name has one already.
    """
    if not callable(function):
        raise TypeError(f"a preprocess function is callable, not {type(function).__name__}")
    _register(_preprocesses, name, function, f"Preprocessing function for backend {name}")


def _register(table: dict[str, Any], name: str, value: object, noun: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a backend is a str, not {type(name).__name__}")
    if not name.isidentifier():
        raise JitError(f"the name of a backend is an identifier such as 'our_chip', not {name!r}")
    with _lock:
        if name in table:
            raise JitError(
                f"{noun} is already registered. Ensure that registration is only called once."
            )
        table[name] = value


def preprocess_of(name: str) -> Preprocess:
    """Return a backend's preprocess function; raises RuntimeError, with the nearest name."""
    if name not in _preprocesses:
        near = suggestion(name, list(_preprocesses))
        raise JitError(f"Preprocessing function for backend {name} is not registered.{near}")
    return _preprocesses[name]


def backend_factory(name: str) -> Factory:
    """Return what makes the instances of a backend; raises RuntimeError, with the nearest name."""
    if name not in _backends:
        raise JitError(f"Backend {name} is not registered.{suggestion(name, list(_backends))}")
    return _backends[name]


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return " Did you mean 'this'?" where a candidate is near, else ""."""
    near = nearest(name, tuple(candidates))
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
