"""The life of one lowered module: its backend is made, asked, compiles and executes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlbackends.jit.errors import BackendNotAvailable, DelegateError, JitError
from mlbackends.jit.registration import new_backend

if TYPE_CHECKING:
    import inspect

    from mlbackends.jit.debug_handles import SourceLine
    from mlbackends.jit.interface import BackendInterface
    from mlbackends.jit.methods import Method


#: What is saved of a lowered module.
SAVED = (
    "backend_name",
    "original_name",
    "processed",
    "method_compile_spec",
    "methods",
    "debug_info",
)


class Compiled:
    """What a backend was given and what it made of it.

    Pickled and deeply copied without backend and handles: a new instance is made and compiles anew.
    """

    def __init__(
        self,
        backend_name: str,
        original_name: str,
        processed: Any,
        method_compile_spec: dict[str, Any],
        methods: dict[str, Method],
        debug_info: dict[int, SourceLine],
    ) -> None:
        self.backend_name = backend_name
        self.original_name = original_name
        self.processed = processed
        self.method_compile_spec = method_compile_spec
        self.methods = methods
        self.debug_info = debug_info
        self.backend: BackendInterface = new_backend(backend_name)
        self.handles: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what is saved."""
        return {name: getattr(self, name) for name in SAVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the backend and compile; raises BackendNotAvailable where it cannot run here."""
        vars(self).update(state)
        self.backend = new_backend(self.backend_name)
        self.compile()

    def compile(self) -> None:
        """Ask the backend whether it is available, and for a handle for each method."""
        if not self.backend.is_available():
            raise BackendNotAvailable
        handles = self.backend.compile(self.processed, self.method_compile_spec)
        if not isinstance(handles, dict):
            raise JitError(
                f"backend {self.backend_name} returned {type(handles).__name__} from compile; "
                "a dict with a handle for each method is needed"
            )
        missing = [name for name in self.methods if name not in handles]
        if missing:
            raise JitError(
                f"backend {self.backend_name} compiled no handle for {', '.join(map(repr, missing))}"
            )
        self.handles = handles

    def run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one method.

        Raises BackendNotAvailable where the backend is not, RuntimeError where it was not when the
        module was lowered.
        """
        method = self.methods[name]
        inputs = method.inputs(args, kwargs)
        if not self.backend.is_available():
            raise BackendNotAvailable
        if name not in self.handles:
            raise JitError(
                f"{self.original_name} was lowered while backend {self.backend_name} was not "
                "available; save it and load it again"
            )
        try:
            outputs = self.backend.execute(self.handles[name], inputs)
        except DelegateError as error:
            place = self.debug_info.get(-1 if error.debug_handle is None else error.debug_handle)
            if place:
                error.add_note(f"in {place.function}, {place.file}, line {place.line}")
            raise
        return method.unpack(outputs, self.backend_name)


class LoweredMethod:
    """A method of a lowered module, bound to it."""

    def __init__(self, compiled: Compiled, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__lowered_method__ = compiled.methods[name]
        self._compiled = compiled

    @property
    def __signature__(self) -> inspect.Signature:
        return self.__lowered_method__.signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method as the original is called."""
        return self._compiled.run(self.__name__, args, kwargs)

    def __repr__(self) -> str:
        return f"<lowered method {self.__name__} of {self._compiled.original_name}>"
