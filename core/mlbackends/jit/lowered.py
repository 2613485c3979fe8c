"""Lowered modules: compiled by their backend, called like the original, copied, saved and loaded.

A file is one line of text and a pickle:

    mlbackends-lowered 2 backend=NAME bytes=LENGTH sha256=DIGEST

The pickle holds the processed artefact, the compile spec and the signatures; the backend compiles again
when it is loaded. **Loading a pickle runs code that its author chose**: load files that you trust, and no
others. The digest finds truncated and damaged files, not hostile ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from mlbackends.jit.backend import (
    BackendInterface,
    BackendNotAvailable,
    DelegateError,
    JitError,
    NotLoadable,
    backend_factory,
    new_backend,
    suggestion,
)

if TYPE_CHECKING:
    from mlbackends.jit.backend import SourceLine
    from mlbackends.jit.methods import Method

_MAGIC = b"mlbackends-lowered"
_VERSION = b"2"
_HEADER_LIMIT = 4096
_SAVED = (
    "backend_name", "original_name", "processed", "method_compile_spec", "methods", "debug_info",
)  # fmt: skip


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
        return {name: getattr(self, name) for name in _SAVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the backend and compile; raises BackendNotAvailable where it cannot run here."""
        self.__init__(**state)  # type: ignore[misc]
        self.compile()

    def compile(self) -> None:
        """Check that the backend is available, and let it make a handle for each method."""
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

    def bound(self, owner: object, name: str) -> Any:
        """Return one method as a function, for the attribute of that name."""
        if name not in self.methods:
            raise AttributeError(
                f"{type(owner).__name__!r} object has no attribute {name!r}."
                f"{suggestion(name, self.methods)}",
                name=name,
                obj=owner,
            )

        def lowered_method(*args: Any, **kwargs: Any) -> Any:
            return self.run(name, args, kwargs)

        made: Any = lowered_method
        made.__name__ = name
        made.__qualname__ = f"{name} of {self.original_name}"
        made.__signature__ = self.methods[name].signature
        made.__lowered_method__ = self.methods[name]
        return made


class LoweredModule:
    """The lowered form of a module: it has the methods that the compile spec names, and no others.

    Its __compiled__ holds the processed artefact, the spec, the backend and its handles.
    """

    def __init__(self, compiled: Compiled) -> None:
        self.__compiled__ = compiled

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__compiled"):  # while a copy is put together
            raise AttributeError(name)
        return self.__compiled__.bound(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__compiled__.methods]

    def __repr__(self) -> str:
        methods = ", ".join(self.__compiled__.methods)
        return f"{self.__compiled__.original_name} lowered to {self.__compiled__.backend_name} ({methods})"


class LoweredWrapper:
    """What takes the place of a module that was lowered: call it as the original was called.

    Calling it calls `forward`, or `__call__` where that was lowered itself. Pickling and deep copies
    take the processed artefact and the compile spec along and compile anew, so they need an available
    backend; copy.copy shares the lowered module.
    """

    __lowered_wrapper__ = True
    __loweredModule__: LoweredModule

    def __init__(self, lowered: LoweredModule) -> None:
        object.__setattr__(self, "__loweredModule__", lowered)

    @property
    def original_name(self) -> str:
        """The name of the class that was lowered."""
        return self.__loweredModule__.__compiled__.original_name.rpartition(".")[2]

    @property
    def qualified_name(self) -> str:
        """LoweredWrapper, the backend and the class that was lowered, with dots between."""
        compiled = self.__loweredModule__.__compiled__
        return f"LoweredWrapper.{compiled.backend_name}.{compiled.original_name}"

    def save(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Write to a path, all or nothing, or to a binary file; see mlbackends.jit.save."""
        save(self, file)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, or `__call__` where that was lowered."""
        compiled = self.__loweredModule__.__compiled__
        name = "__call__" if "__call__" in compiled.methods else "forward"
        return compiled.bound(self, name)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__lowered"):  # while a copy is put together
            raise AttributeError(name)
        return self.__loweredModule__.__compiled__.bound(self, name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a lowered module cannot be changed ({name!r})")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a lowered module cannot be changed ({name!r})")

    def __copy__(self) -> LoweredWrapper:
        return type(self)(self.__loweredModule__)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__loweredModule__.__compiled__.methods]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(original_name={self.original_name})\n  ({self.__loweredModule__!r})"


def save(module: LoweredWrapper, file: str | os.PathLike[str] | BinaryIO) -> None:
    """Write a lowered module to a path or a binary file.

    A path holds the whole file or what was there before, never a part. Works while the backend is not
    available. Raises TypeError for what is not lowered, RuntimeError where the processed artefact
    or the spec cannot be pickled, OSError where the file cannot be written.
    """
    if not isinstance(module, LoweredWrapper):
        raise TypeError(f"what to_backend returned can be saved, not {type(module).__name__}")
    compiled = module.__loweredModule__.__compiled__
    try:
        body = pickle.dumps(compiled.__getstate__(), protocol=5)
    except Exception as error:
        raise JitError(
            f"what backend {compiled.backend_name} made of {compiled.original_name} cannot be "
            f"pickled: {error}"
        ) from error
    digest = hashlib.sha256(body).hexdigest()
    header = f" backend={compiled.backend_name} bytes={len(body)} sha256={digest}\n"
    content = _MAGIC + b" " + _VERSION + header.encode() + body
    if hasattr(file, "write"):
        file.write(content)
    else:
        _write_whole(os.path.realpath(os.fspath(file)), content)


def load(file: str | os.PathLike[str] | BinaryIO) -> LoweredWrapper:
    """Read a lowered module from a path or a binary file, and let its backend compile it.

    This unpickles: a file that you do not trust can run any code. Raises NotLoadable (a RuntimeError
    and ValueError) for a file that is not ours, truncated, damaged, of another version or in need of a
    class that is not here; RuntimeError where the backend is not registered or "Backend is not
    available."; OSError where the file cannot be read.
    """
    if hasattr(file, "read"):
        name = str(getattr(file, "name", "the file"))
        content = file.read()
    else:
        name = os.fspath(file)
        with open(name, "rb") as opened:
            content = opened.read()
    backend, body = _checked_body(content, name)
    backend_factory(backend)  # must be registered before any code of the file runs
    try:
        state = pickle.loads(body)  # noqa: S301  documented above
    except (ImportError, AttributeError, pickle.UnpicklingError) as error:
        raise NotLoadable(f"{name} cannot be unpickled here: {error}") from error
    if not isinstance(state, dict) or set(state) != set(_SAVED) or state["backend_name"] != backend:
        raise NotLoadable(f"{name} holds no lowered module of backend {backend}")
    compiled = Compiled(**state)
    compiled.compile()
    return LoweredWrapper(LoweredModule(compiled))


def _checked_body(content: bytes, name: str) -> tuple[str, bytes]:
    """Return the backend's name and the pickle of a file's content, after checking the line."""
    line, _, body = content[:_HEADER_LIMIT].partition(b"\n")
    words = line.split(b" ")
    if words[0] != _MAGIC:
        raise NotLoadable(f"{name} is no lowered module: it does not begin with {_MAGIC.decode()}")
    if len(words) > 1 and words[1].isdigit() and words[1] != _VERSION:
        raise NotLoadable(
            f"{name} is of version {words[1].decode()}; this mlbackends reads version "
            f"{_VERSION.decode()}"
        )
    fields = dict(word.decode(errors="replace").partition("=")[::2] for word in words[2:])
    if set(fields) != {"backend", "bytes", "sha256"} or not fields["bytes"].isdigit():
        raise NotLoadable(f"{name} is truncated or damaged: its first line is not complete")
    body = content[len(line) + 1 :]
    if str(len(body)) != fields["bytes"]:
        raise NotLoadable(
            f"{name} is truncated or has grown: {len(body)} bytes follow its first line, which "
            f"announces {fields['bytes']}"
        )
    if hashlib.sha256(body).hexdigest() != fields["sha256"]:
        raise NotLoadable(f"{name} is damaged: its content does not have the digest that it names")
    return fields["backend"], body


def _write_whole(path: str, content: bytes) -> None:
    """Write beside the path and move into place, so that no reader sees a part."""
    part = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
