"""What counts as a module, what its submodules are, and how it is cloned.

A module is an instance of a class that is written in Python and has public methods, or has
`named_children()` as torch's modules do. Classes, functions, numbers, texts, containers and arrays
(whatever has `__dlpack__` or `__array__`) are data.

The submodules of an object with `named_children()` are what that yields, and attributes that have
`named_children()` themselves or are lowered; of any other module, the attributes that are modules.
"""

import copy
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from mlbackends.base import registry
from mlbackends.jit.backend import JitError, suggestion

_FUNCTIONS = (types.FunctionType, staticmethod, classmethod)


def is_module(value: object) -> bool:
    """Return whether a value counts as a module."""
    if isinstance(value, (type, types.ModuleType)):
        return False
    cls = type(value)
    if hasattr(cls, "named_children"):
        return True
    if hasattr(cls, "__dlpack__") or hasattr(cls, "__array__"):
        return False
    return any(
        isinstance(attribute, _FUNCTIONS) and not name.startswith("_")
        for each in cls.__mro__
        for name, attribute in vars(each).items()
    )


def is_lowered(value: object) -> bool:
    """Return whether a value is what lowering returned."""
    return hasattr(type(value), "__lowered_wrapper__")


def submodule(parent: Any, name: str) -> Any:
    """Return a submodule by its name; raises RuntimeError where there is none, or it is data."""
    named = hasattr(type(parent), "named_children")
    children = dict(parent.named_children()) if named else {}
    if name in children:
        return children[name]
    try:
        value = getattr(parent, name)
    except AttributeError:
        names = [*children, *(key for key, each in _attributes(parent) if is_module(each))]
        raise JitError(
            f"{type(parent).__qualname__} does not have a field with name '{name}'."
            f"{suggestion(name, names)}"
        ) from None
    counts = (
        hasattr(type(value), "named_children") or is_lowered(value) if named else is_module(value)
    )
    if not counts:
        raise JitError(f"Attribute named {name} is not a Module")
    return value


def replace(parent: Any, name: str, lowered: Any) -> None:
    """Put a lowered module in the place of a submodule; raises RuntimeError where that fails.

    Below a torch.nn.Module it becomes a torch.nn.Module, so that the parent still counts it as a child.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(parent, torch.nn.Module):
        bridge = registry.load(f"{registry.KERNELS}.bridges", "torch_module")
        lowered = bridge.as_torch_module(lowered)
    try:
        setattr(parent, name, lowered)
    except (AttributeError, TypeError):  # frozen, as dataclasses can be
        object.__setattr__(parent, name, lowered)
    if submodule(parent, name) is not lowered:
        raise JitError(f"{type(parent).__qualname__} does not let '{name}' be replaced")


def clone(module: Any) -> tuple[Any, set[int]]:
    """Copy a module and its submodules, and share what is data, as torch does with tensors.

    Attributes, and built-in containers in them, are followed. What cannot be copied, and what is
    lowered already, is shared. Returns the copy, and the ids of those modules in it that are
    reached by more than one way.
    """
    copies: dict[int, Any] = {}
    originals: list[Any] = []  # so that no id is given to another object meanwhile
    unfinished: set[int] = set()
    shared: set[int] = set()

    def begin(original: Any, result: Any) -> Any:
        copies[id(original)] = result
        unfinished.add(id(original))
        originals.append(original)
        return result

    def copied(value: Any) -> Any:
        key = id(value)
        if key in copies:
            if key not in unfinished:  # a way back to a parent shares nothing
                shared.add(id(copies[key]))
            return copies[key]
        result = value
        if type(value) in {dict, OrderedDict}:
            result = begin(value, type(value)())
            result.update((name, copied(each)) for name, each in value.items())
        elif type(value) is list:
            result = begin(value, [])
            result.extend(map(copied, value))
        elif type(value) is tuple:
            items = tuple(map(copied, value))
            if any(new is not old for new, old in zip(items, value, strict=True)):
                return items
        elif is_module(value) and not is_lowered(value):
            try:
                result = begin(value, copy.copy(value))
            except (TypeError, copy.Error):
                begin(value, value)
            else:
                for name, attribute in list(_attributes(result)):
                    new = copied(attribute)
                    if new is not attribute:
                        object.__setattr__(result, name, new)
        unfinished.discard(key)
        return result

    return copied(module), shared


def _attributes(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an instance, those in slots too."""
    yield from getattr(module, "__dict__", {}).items()
    for cls in type(module).__mro__:
        for name, descriptor in list(vars(cls).items()):
            if isinstance(descriptor, types.MemberDescriptorType) and hasattr(module, name):
                yield name, descriptor.__get__(module)
