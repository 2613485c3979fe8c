"""Backends: what they must offer, what they raise, and the names that they are registered under.

Two tables, as in torch: a name can be lowered to once it has a backend and a preprocess function. A
name is registered once for the life of the process. Any thread may register and look up.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends.model.errors import BadInput, MlBackendsError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Preprocess = Callable[[Any, dict[str, Any], "DebugHandles"], Any]
    Factory = Callable[[], "BackendInterface"]


class BackendInterface(ABC):
    """A compiler and a runtime for the methods of a lowered module.

    One instance is made for each module that is lowered, loaded or copied deeply. What an
    implementation raises reaches the caller as it is; `DelegateError` adds the place in the source.
    """

    @abstractmethod
    def is_available(self) -> bool:
        """Tell whether this backend can compile and execute in this process, now.

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


# ---- errors, of the types that torch's JIT raises: nearly all are RuntimeErrors ----


class JitError(MlBackendsError, RuntimeError):
    """A registration, a lowering or a result of a backend is wrong."""


class NotAModule(MlBackendsError, AttributeError):
    """What was to be lowered is no object with methods."""


class BackendNotAvailable(JitError):
    """The backend says that it cannot run here: at a call, or when a lowered module is loaded."""

    exit_code = 1

    def __init__(self) -> None:
        super().__init__("Backend is not available.")

    def __reduce__(self) -> tuple[type[BackendNotAvailable], tuple[()]]:
        return BackendNotAvailable, ()


class CallMismatch(JitError, TypeError):
    """The arguments of a call do not fit the signature of the lowered method."""


class BadOutput(JitError):
    """What a backend returned is not what the interface or the original method promises."""


class NotLoadable(BadInput, RuntimeError):
    """A file that holds no lowered module, a truncated one, or one of another version."""


class DelegateError(JitError):
    """For backends to raise from `execute`: the failure, and the debug handle where it happened.

    The lowered module adds the line of the original method that the handle stands for.
    """

    def __init__(self, message: str, debug_handle: int | None = None) -> None:
        super().__init__(message)
        self.debug_handle = debug_handle


class SourceLine(NamedTuple):
    """Where a debug handle points."""

    file: str
    line: int
    function: str


_handles = itertools.count()


class DebugHandles:
    """The generator that a preprocess function gets: it gives each line of a method a handle.

    recorded: every handle given so far, and the line that it stands for. Handles are unique in the
    process, and the lowered module keeps the lines, also when it is saved.
    """

    def __init__(self) -> None:
        self.recorded: dict[int, SourceLine] = {}

    def __call__(self, method: Any) -> dict[int, int]:
        """Return {line number: handle} for the lines of a function or bound method that hold code.

        Raises TypeError for what is not written in Python (builtins, classes).
        """
        code = getattr(getattr(method, "__func__", method), "__code__", None)
        if code is None:
            raise TypeError(f"debug handles are for Python functions and methods, not {method!r}")
        lines = sorted({line for _, _, line in code.co_lines() if line})
        handles = {line: next(_handles) for line in lines}
        for line, handle in handles.items():
            self.recorded[handle] = SourceLine(code.co_filename, line, code.co_qualname)
        return handles


# ---- registration -----------------------------------------------------------

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
    _register(_backends, name, backend, f"Backend {name}")


def register_preprocess(name: str, function: Preprocess) -> None:
    """Register the function that prepares a module for the backend, ahead of time.

    It is called as function(module, method_compile_spec, debug_handles) with a clone of the module
    that it may change, and returns the processed artefact, which must be picklable where the lowered
    module is to be saved. Raises RuntimeError where the name has one already.
    """
    _check_name(name)
    if not callable(function):
        raise TypeError(f"a preprocess function is callable, not {type(function).__name__}")
    _register(_preprocesses, name, function, f"Preprocessing function for backend {name}")


def preprocess_of(name: str) -> Preprocess:
    """Return a backend's preprocess function; raises RuntimeError where there is none."""
    found: Preprocess = _registered(
        _preprocesses, name, f"Preprocessing function for backend {name}"
    )
    return found


def backend_factory(name: str) -> Factory:
    """Return what makes the instances of a backend; raises RuntimeError, with the nearest name."""
    found: Factory = _registered(_backends, name, f"Backend {name}")
    return found


def new_backend(name: str) -> BackendInterface:
    """Make an instance of a registered backend; raises RuntimeError where there is none."""
    made = backend_factory(name)()
    if not isinstance(made, BackendInterface):
        raise TypeError(
            f"the factory of backend {name} returned {type(made).__name__}, no BackendInterface"
        )
    return made


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return " Did you mean 'this'?" where a candidate is near, else ""."""
    near = nearest(name, tuple(candidates))
    return f" Did you mean {' or '.join(repr(each) for each in near)}?" if near else ""


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a backend is a str, not {type(name).__name__}")
    if not name.isidentifier():
        raise JitError(f"the name of a backend is an identifier such as 'our_chip', not {name!r}")


def _register(table: dict[str, Any], name: str, value: object, what: str) -> None:
    with _lock:
        if name in table:
            raise JitError(
                f"{what} is already registered. Ensure that registration is only called once."
            )
        table[name] = value


def _registered(table: dict[str, Any], name: str, what: str) -> Any:
    with _lock:
        if name not in table:
            raise JitError(f"{what} is not registered.{suggestion(name, table)}")
        return table[name]
