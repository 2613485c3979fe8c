"""The two objects that lowering makes: a wrapper for the user, and the lowered module inside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from mlbackends.jit.compiled import Compiled, LoweredMethod
from mlbackends.jit.errors import suggestion

if TYPE_CHECKING:
    import os
    from typing import BinaryIO


class LoweredModule:
    """The lowered form of a module: it has the methods that the compile spec names, and no others.

    Its __compiled__ holds the processed artefact, the spec, the backend and its handles.
    """

    def __init__(self, compiled: Compiled) -> None:
        self.__compiled__ = compiled

    def __getattr__(self, name: str) -> Any:
        compiled = vars(self).get("__compiled__")  # none yet while a copy is put together
        if compiled is not None and name in compiled.methods:
            return LoweredMethod(compiled, name)
        raise _no_attribute(self, compiled, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__compiled__.methods]

    def __repr__(self) -> str:
        methods = ", ".join(self.__compiled__.methods)
        return f"{self.__compiled__.original_name} lowered to {self.__compiled__.backend_name} ({methods})"


class LoweredWrapper:
    """What stands in the place of a module that was lowered: call it as the original was called.

    Calling it calls `forward`, or `__call__` where that was lowered itself. Pickling and deep copies
    take the processed artefact and the compile spec along and compile anew, so they need an available
    backend; copy.copy shares the lowered module.
    """

    __lowered_wrapper__ = True

    def __init__(self, lowered: LoweredModule) -> None:
        self.__loweredModule__ = lowered

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
        from mlbackends.jit.saved import save

        save(self, file)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, or `__call__` where that was lowered."""
        compiled = self.__loweredModule__.__compiled__
        name = "__call__" if "__call__" in compiled.methods else "forward"
        if name not in compiled.methods:
            raise _no_attribute(self, compiled, name)
        return compiled.run(name, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        lowered = vars(self).get("__loweredModule__")
        compiled = vars(lowered).get("__compiled__") if lowered is not None else None
        if compiled is not None and name in compiled.methods:
            return LoweredMethod(compiled, name)
        raise _no_attribute(self, compiled, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name != "__loweredModule__" or name in vars(self):
            self._refuse(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise AttributeError(f"a lowered module cannot be changed ({name!r})")

    def __copy__(self) -> LoweredWrapper:
        return type(self)(self.__loweredModule__)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__loweredModule__.__compiled__.methods]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(original_name={self.original_name})\n  ({self.__loweredModule__!r})"


def _no_attribute(owner: object, compiled: Compiled | None, name: str) -> AttributeError:
    """Return what to raise for a name that is no lowered method."""
    near = suggestion(name, compiled.methods if compiled is not None else ())
    kind = type(owner).__name__
    return AttributeError(f"{kind!r} object has no attribute {name!r}.{near}", name=name, obj=owner)


def is_reserved(name: str) -> bool:
    """Tell whether the wrapper has a name for itself, so that no method can be lowered by it."""
    return name.startswith("__lowered") or (name != "__call__" and hasattr(LoweredWrapper, name))
