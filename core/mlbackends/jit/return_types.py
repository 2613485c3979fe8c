"""What a method promises to return, as a check that can be saved without the classes it names.

Made from the annotation of the original method. Containers are checked with their items, an int passes
for a float, and what Python cannot check (a TypeVar, a name that does not exist at run time) accepts
anything.
"""

from __future__ import annotations

import collections.abc
import sys
import types
import typing
from typing import Any, NamedTuple, Protocol

from mlbackends.jit.annotation_text import OfUnknown

#: Their items can be looked at without using them up.
_LOOKED_INTO = (list, tuple, set, frozenset, collections.abc.Mapping, collections.deque)
_PROMOTED = {float: (int,), complex: (int, float)}


class ReturnType(Protocol):
    """A check on one value; its text is the annotation as it would be written."""

    def matches(self, value: object) -> bool:
        """Tell whether the value is what the annotation says."""


class Anything(NamedTuple):
    """No annotation, or one that nothing can be checked by."""

    def matches(self, value: object) -> bool:
        """Accept."""
        del value
        return True

    def __str__(self) -> str:
        return "Any"


class Class:
    """An instance of a class, which is saved by name.

    Where the class is not imported in the process that loads, the names in the value's own method
    resolution order decide.
    """

    def __init__(self, cls: type) -> None:
        self.module = cls.__module__
        self.name = cls.__qualname__
        self._class: type | None = cls

    def __getstate__(self) -> tuple[str, str]:
        return self.module, self.name

    def __setstate__(self, state: tuple[str, str]) -> None:
        self.module, self.name = state
        self._class = None

    def class_(self) -> type | None:
        """Return the class, where it is imported in this process."""
        if self._class is None:
            found: Any = sys.modules.get(self.module)
            for part in self.name.split("."):
                found = getattr(found, part, None)
            self._class = found if isinstance(found, type) else None
        return self._class

    def matches(self, value: object) -> bool:
        """Tell whether the value is an instance of the class or, by name, of one below it."""
        cls = self.class_()
        if cls is None:
            own = type(value).__mro__
            return any((each.__module__, each.__qualname__) == self.__getstate__() for each in own)
        try:
            return isinstance(value, (cls, *_PROMOTED.get(cls, ())))
        except TypeError:  # a protocol that is not for run time
            return True

    def __str__(self) -> str:
        if self._class is types.NoneType:
            return "None"
        return self.name if self.module == "builtins" else f"{self.module}.{self.name}"


class OneOf(NamedTuple):
    """A union."""

    options: tuple[ReturnType, ...]

    def matches(self, value: object) -> bool:
        """Tell whether one of the options matches."""
        return any(option.matches(value) for option in self.options)

    def __str__(self) -> str:
        return " | ".join(map(str, self.options))


class Values(NamedTuple):
    """A Literal."""

    values: tuple[Any, ...]

    def matches(self, value: object) -> bool:
        """Tell whether the value is one of them, of the same type."""
        return any(type(value) is type(each) and value == each for each in self.values)

    def __str__(self) -> str:
        return f"Literal[{', '.join(map(repr, self.values))}]"


class Container(NamedTuple):
    """A container of any length; keys are None unless it is a mapping."""

    container: Class
    items: ReturnType
    keys: ReturnType | None = None

    def matches(self, value: object) -> bool:
        """Tell whether the container and everything in it match."""
        if not self.container.matches(value):
            return False
        if not isinstance(value, _LOOKED_INTO):
            return True
        if isinstance(value, collections.abc.Mapping):
            keys = self.keys or self.items
            values = value.values() if self.keys else ()
            return all(map(keys.matches, value)) and all(map(self.items.matches, values))
        return all(map(self.items.matches, value))

    def __str__(self) -> str:
        dots = ", ..." if self.container.name == "tuple" else ""
        inside = f"{self.keys}, {self.items}" if self.keys else f"{self.items}{dots}"
        return f"{self.container}[{inside}]"


class Items(NamedTuple):
    """A tuple of a fixed length; named holds the class where it is a named tuple."""

    items: tuple[ReturnType, ...]
    named: Class | None = None

    def matches(self, value: object) -> bool:
        """Tell whether it is a tuple of this length and its items match."""
        return (
            isinstance(value, tuple)
            and (self.named is None or self.named.matches(value))
            and len(value) == len(self.items)
            and all(item.matches(each) for item, each in zip(self.items, value, strict=True))
        )

    def __str__(self) -> str:
        return str(self.named or f"tuple[{', '.join(map(str, self.items)) or '()'}]")


def parse(annotation: Any) -> ReturnType:
    """Return the check for an annotation that has been evaluated already."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or isinstance(annotation, OfUnknown):
        return Anything()
    if annotation is None or annotation is types.NoneType:
        return Class(types.NoneType)
    if hasattr(annotation, "__supertype__"):  # a NewType
        return parse(annotation.__supertype__)
    if origin is typing.Annotated or origin in {typing.Final, typing.Required}:
        return parse(arguments[0])
    if origin is typing.Literal:
        return Values(arguments)
    if origin in {typing.Union, types.UnionType}:
        return OneOf(tuple(map(parse, arguments)))
    if origin is type or not isinstance(origin or annotation, type):
        return Class(type) if origin is type else Anything()
    cls: type = origin or annotation
    if cls is object:
        return Anything()
    if issubclass(cls, tuple):
        return _parse_tuple(cls, arguments, empty=origin is tuple and not arguments)
    if not arguments:
        return Class(cls)
    if issubclass(cls, collections.abc.Mapping) and len(arguments) == 2:
        return Container(Class(cls), parse(arguments[1]), parse(arguments[0]))
    if issubclass(cls, collections.abc.Iterable) and len(arguments) == 1:
        return Container(Class(cls), parse(arguments[0]))
    return Class(cls)


def _parse_tuple(cls: type, arguments: tuple[Any, ...], *, empty: bool) -> ReturnType:
    """Return the check for a tuple class; empty: it is written as tuple[()]."""
    fields: tuple[str, ...] | None = getattr(cls, "_fields", None)
    if fields is not None:
        return Items(tuple(parse(each) for each in _fields(cls, fields)), Class(cls))
    if cls is not tuple:
        return Class(cls)
    if arguments and arguments[-1] is not ...:
        return Items(tuple(map(parse, arguments)))
    if empty:
        return Items(())
    return Container(Class(tuple), parse(arguments[0]) if arguments else Anything())


def _fields(cls: type, fields: tuple[str, ...]) -> list[Any]:
    """Return the annotations of a named tuple, Any where one names what does not exist here."""
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, AttributeError, TypeError):
        hints = {}
    return [hints.get(field, Any) for field in fields]
