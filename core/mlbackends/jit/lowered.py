"""Lowered modules: compiled by their backend, called like the original, copied, saved and loaded.

A file is one line of text, `mlbackends-lowered 3 NAME SHA256`, and a pickle with the processed artefact,
the compile spec and the signatures; the backend compiles again when it is loaded. **Loading a pickle runs
code that its author chose**: load files that you trust, and no others. The digest finds truncated and
damaged files, not hostile ones.
"""

import contextlib
import hashlib
import os
import pickle
from dataclasses import dataclass, fields
from typing import Any, BinaryIO, NoReturn

from mlbackends.host.files import whole_file
from mlbackends.jit.backend import (
    BackendInterface,
    BackendNotAvailable,
    JitError,
    NotLoadable,
    backend_factory,
    suggestion,
)
from mlbackends.jit.methods import Method

_MAGIC = b"mlbackends-lowered"
_VERSION = b"3"
_LONGEST_LINE = 4096


@dataclass(eq=False)
class Compiled:
    """What a backend was given and what it made of it.

    Pickled and deeply copied without backend and handles: a new instance is made and compiles anew.
    """

    backend_name: str
    original_name: str
    processed: Any
    method_compile_spec: dict[str, Any]
    methods: dict[str, Method]

    def __post_init__(self) -> None:
        self.backend = backend_factory(self.backend_name)()
        if not isinstance(self.backend, BackendInterface):
            raise TypeError(
                f"the factory of backend {self.backend_name} returned {type(self.backend).__name__},"
                " no BackendInterface"
            )
        self.handles: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what is saved."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the backend and compile; raises BackendNotAvailable where it cannot run here."""
        self.__init__(**state)  # type: ignore[misc]
        self.compile()

    def compile(self) -> None:
        """Check that the backend is available, and let it make a handle for each method."""
        if not self.backend.is_available():
            raise BackendNotAvailable("Backend is not available.")
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
            raise BackendNotAvailable("Backend is not available.")
        if name not in self.handles:
            raise JitError(
                f"{self.original_name} was lowered while backend {self.backend_name} was not "
                "available; save it and load it again"
            )
        return method.unpack(self.backend.execute(self.handles[name], inputs), self.backend_name)


class LoweredModule:
    """What takes the place of a module that was lowered: call it as the original was called.

    It has the methods that the compile spec names, and no others. Calling it calls `forward`, or
    `__call__` where that was lowered itself. Pickling and deep copies take the processed artefact and
    the compile spec along and compile anew, so they need an available backend; copy.copy shares them.
    """

    __lowered_wrapper__ = True
    __compiled__: Compiled

    def __init__(self, compiled: Compiled) -> None:
        object.__setattr__(self, "__compiled__", compiled)

    @property
    def __loweredModule__(self) -> "LoweredModule":  # noqa: N802  torch's name
        """The module inside torch's wrapper; here the two are one."""
        return self

    @property
    def original_name(self) -> str:
        """The name of the class that was lowered."""
        return self.__compiled__.original_name.rpartition(".")[2]

    @property
    def qualified_name(self) -> str:
        """LoweredWrapper, the backend and the class that was lowered, with dots between."""
        return f"LoweredWrapper.{self.__compiled__.backend_name}.{self.__compiled__.original_name}"

    def save(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Write to a path, all or nothing, or to a binary file; see mlbackends.jit.save."""
        save(self, file)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, or `__call__` where that was lowered."""
        name = "__call__" if "__call__" in self.__compiled__.methods else "forward"
        return self.__getattr__(name)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "__compiled__":  # while a copy is put together
            raise AttributeError(name)
        compiled = self.__compiled__
        if name not in compiled.methods:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}."
                f"{suggestion(name, compiled.methods)}",
                name=name,
                obj=self,
            )

        def method(*args: Any, **kwargs: Any) -> Any:
            return compiled.run(name, args, kwargs)

        method.__name__ = name
        method.__qualname__ = f"{name} of {compiled.original_name}"
        method.__signature__ = compiled.methods[name].signature  # type: ignore[attr-defined]
        return method

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a lowered module cannot be changed ({name!r})")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__compiled__.methods]

    def __repr__(self) -> str:
        compiled = self.__compiled__
        methods = ", ".join(compiled.methods)
        return f"{compiled.original_name} lowered to {compiled.backend_name} ({methods})"


#: torch's name of what is called.
LoweredWrapper = LoweredModule


def save(module: LoweredModule, file: str | os.PathLike[str] | BinaryIO) -> None:
    """Write a lowered module to a path or a binary file.

    A path holds the whole file or what was there before, never a part. Works while the backend is not
    available. Raises TypeError for what is not lowered, RuntimeError where the processed artefact
    or the spec cannot be pickled, OSError where the file cannot be written.
    """
    if not isinstance(module, LoweredModule):
        raise TypeError(f"what to_backend returned can be saved, not {type(module).__name__}")
    compiled = module.__compiled__
    try:
        body = pickle.dumps(compiled.__getstate__(), protocol=5)
    except Exception as error:
        raise JitError(
            f"what backend {compiled.backend_name} made of {compiled.original_name} cannot be "
            f"pickled: {error}"
        ) from error
    words = (_MAGIC, _VERSION, compiled.backend_name.encode(), _digest(body))
    content = b" ".join(words) + b"\n" + body
    if hasattr(file, "write"):
        file.write(content)
        return
    with whole_file(os.fspath(file)) as opened:
        opened.write(content)


def load(file: str | os.PathLike[str] | BinaryIO) -> LoweredModule:
    """Read a lowered module from a path or a binary file, and let its backend compile it.

    This unpickles: a file that you do not trust can run any code. Raises NotLoadable (a RuntimeError
    and ValueError) for a file that is not ours, truncated, damaged, of another version, or in need of a
    class that is not here; RuntimeError where the backend is not registered or "Backend is not
    available."; OSError where the file cannot be read.
    """
    with contextlib.ExitStack() as stack:
        opened: Any = file if hasattr(file, "read") else stack.enter_context(open(file, "rb"))
        name = str(getattr(opened, "name", "the file"))
        line = opened.readline(_LONGEST_LINE)
        body = opened.read() if line.startswith(_MAGIC) else b""
    words = line.split()
    if words[:1] != [_MAGIC]:
        raise NotLoadable(
            f"{name} is not a lowered module: it does not begin with {_MAGIC.decode()}"
        )
    if len(words) != 4 or words[1] != _VERSION or not line.endswith(b"\n"):
        version = b" ".join(words[1:2]).decode(errors="replace")
        raise NotLoadable(
            f"{name} is of version {version!r} or truncated; this mlbackends reads version"
            f" {_VERSION.decode()}"
        )
    backend = words[2].decode(errors="replace")
    backend_factory(backend)  # must be registered before any code of the file runs
    if words[3] != _digest(body):
        raise NotLoadable(
            f"{name} is truncated or damaged: its digest is not that of its first line"
        )
    try:
        state = pickle.loads(body)  # noqa: S301  documented above
    except (ImportError, AttributeError, pickle.UnpicklingError) as error:
        raise NotLoadable(f"{name} cannot be unpickled here: {error}") from error
    saved = {field.name for field in fields(Compiled)}
    if not isinstance(state, dict) or set(state) != saved or state["backend_name"] != backend:
        raise NotLoadable(f"{name} holds no lowered module of backend {backend}")
    compiled = Compiled(**state)
    compiled.compile()
    return LoweredModule(compiled)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
