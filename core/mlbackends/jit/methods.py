"""One method of a lowered module: the arguments that it takes and the outputs that it returns.

Taken from the signature and the return annotation of the original method, and saved with the module
without the classes that the annotation names. A class is compared by name, an int passes for a float,
the items of a container are compared too, and what Python cannot check (a TypeVar, a protocol, a name
that exists for type checkers alone) accepts anything.
"""

from __future__ import annotations

import abc
import builtins
import inspect
import sys
import types
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends.jit.backend import BadOutput, CallMismatch, JitError, suggestion
from mlbackends.jit.modules import is_module

if TYPE_CHECKING:
    from collections.abc import Callable

_VARIABLE = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_PROMOTED = {float: (int,), complex: (int, float)}


class ReturnType(NamedTuple):
    """A check on one value.

    text: the annotation as it is written. classes: the names of the classes of which one must be in
    the value's method resolution order; () accepts anything. items: the types of a tuple of a fixed
    length. each: the type of every item, of a mapping of every value. is_named: the class is a
    named tuple.
    """

    text: str
    classes: tuple[str, ...] = ()
    items: tuple[ReturnType, ...] | None = None
    each: ReturnType | None = None
    is_named: bool = False

    def matches(self, value: object) -> bool:
        """Tell whether the value fits the annotation."""
        if not self.classes:
            return True
        names = {f"{cls.__module__}:{cls.__qualname__}" for cls in type(value).__mro__}
        if not names.intersection(self.classes):
            return False
        items: Any = value.values() if isinstance(value, dict) else value
        if self.items is not None:
            return len(items) == len(self.items) and all(
                item.matches(each) for item, each in zip(self.items, items, strict=True)
            )
        return self.each is None or all(map(self.each.matches, items))

    @property
    def named_tuple(self) -> Any:
        """The class of a named tuple, None where it is none or is not imported in this process."""
        module, _, name = self.classes[0].partition(":") if self.is_named else ("", "", "")
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return found


class Method:
    """The signature and the promise of one method.

    returns is None where the original has no return annotation: then one output is returned as it
    is, several as a tuple and none as None.
    """

    def __init__(self, name: str, signature: inspect.Signature, returns: ReturnType | None) -> None:
        self.name = name
        self.signature = signature
        self.returns = returns

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the arguments of a call as one list, in the order of the signature."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CallMismatch(f"{self.name}{self.signature}: {error}") from None
        bound.apply_defaults()
        return list(bound.arguments.values())

    def unpack(self, outputs: Any, backend: str) -> Any:
        """Return what the caller gets for the outputs of `execute`.

        A tuple is built of its items; anything else is the one output. Raises BadOutput where the
        number of outputs or a type is not what the original method promises.
        """
        if not isinstance(outputs, list):
            raise BadOutput(
                f"backend {backend} returned {type(outputs).__name__} from execute; "
                "a list of outputs is needed"
            )
        returns = self.returns
        if returns is None:
            return outputs[0] if len(outputs) == 1 else tuple(outputs) or None
        is_tuple = returns.items is not None
        if returns.each is not None and returns.classes == ("builtins:tuple",):
            wanted = [(returns, tuple(outputs), f"the outputs of {self.name}")]
            result: Any = tuple(outputs)
        else:
            types = returns.items if returns.items is not None else (returns,)
            if len(outputs) != len(types):
                raise BadOutput(
                    f"Expected {len(types)} elements in a list but found {len(outputs)}: "
                    f"{self.name} returns {returns.text} (backend {backend})"
                )
            wanted = [
                (
                    each,
                    output,
                    f"output {at} of {self.name}" if is_tuple else f"the output of {self.name}",
                )
                for at, (each, output) in enumerate(zip(types, outputs, strict=True))
            ]
            cls = returns.named_tuple
            result = cls._make(outputs) if cls else tuple(outputs) if is_tuple else outputs[0]
        for each, output, what in wanted:
            if not each.matches(output):
                raise BadOutput(
                    f"{what} is {type(output).__name__}, not {each.text} as the original method "
                    f"promises (backend {backend})"
                )
        return result


def describe(module: Any, name: str) -> Method:
    """Read one method of a module.

    A method is what the module's class, or a lowered module, lets call by that name; a submodule is
    none. Raises RuntimeError for any other name, and for a method with *args or **kwargs.
    """
    function = getattr(module, name, None)
    is_submodule = is_module(function) and not hasattr(type(module), name)
    if not callable(function) or isinstance(function, type) or is_submodule:
        methods = [each for each in dir(module) if not each.startswith("_")]
        raise JitError(f"Method {name!r} is not defined.{suggestion(name, methods)}")
    lowered = getattr(function, "__lowered_method__", None)
    if isinstance(lowered, Method):
        return Method(name, lowered.signature, lowered.returns)
    try:
        signature = _signature(function)
    except (TypeError, ValueError) as error:
        raise JitError(f"Method {name!r} has no signature that can be read: {error}") from error
    parameters = list(signature.parameters.values())
    for parameter in parameters:
        if parameter.kind in _VARIABLE:
            raise JitError(
                f"Method {name!r} takes {_VARIABLE[parameter.kind]}{parameter.name}; "
                "a lowered method has a fixed list of inputs"
            )
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    annotation: Any = signature.return_annotation
    returns = None
    if annotation is not inspect.Signature.empty:
        annotation = getattr(annotation, "__forward_arg__", annotation)
        if isinstance(annotation, str):
            returns = parse(_evaluated(annotation, function), annotation)
        else:
            returns = parse(annotation)
    return Method(name, inspect.Signature(bare), returns)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, with annotations that cannot be evaluated left as they are."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def parse(annotation: Any, text: str = "") -> ReturnType:
    """Return the check for an annotation that has been evaluated. text: as it is written."""
    text = text or inspect.formatannotation(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if hasattr(annotation, "__supertype__"):  # a NewType
        return parse(annotation.__supertype__, text)
    if origin in {typing.Annotated, typing.Final, typing.Required}:
        return parse(arguments[0], text)
    if origin is typing.Literal:
        return ReturnType(text, _names(*map(type, arguments)))
    if origin in {typing.Union, types.UnionType}:
        options = [parse(each).classes for each in arguments]
        return ReturnType(text, tuple(dict.fromkeys(sum(options, ()))) if all(options) else ())
    cls = types.NoneType if annotation is None else origin or annotation
    if not isinstance(cls, type) or isinstance(cls, abc.ABCMeta | _Unknown) or cls in (Any, object):
        return ReturnType(text)
    if issubclass(cls, tuple) and (fields := getattr(cls, "_fields", None)) is not None:
        try:
            hints = typing.get_type_hints(cls)
        except (NameError, AttributeError, TypeError):  # names that do not exist here
            hints = {}
        items = tuple(parse(hints.get(field, Any)) for field in fields)
        return ReturnType(text, _names(cls), items, is_named=True)
    if cls is tuple and arguments[-1:] == (...,):
        return ReturnType(text, _names(cls), each=parse(arguments[0]))
    if cls is tuple and (arguments or origin is tuple):  # tuple[()] has no arguments
        return ReturnType(text, _names(cls), tuple(map(parse, arguments)))
    if cls is tuple:
        return ReturnType(text, _names(cls), each=ReturnType("Any"))
    if issubclass(cls, list | set | frozenset | dict) and arguments:
        return ReturnType(text, _names(cls), each=parse(arguments[-1]))
    return ReturnType(text, _names(cls, *_PROMOTED.get(cls, ())))


def _names(*classes: type) -> tuple[str, ...]:
    return tuple(f"{cls.__module__}:{cls.__qualname__}" for cls in classes)


# ---- annotations that are text, as below `from __future__ import annotations` ----


def _evaluated(text: str, function: Any) -> Any:
    """Return what the text means to its function, Any where it is no expression for a type."""
    plain = inspect.unwrap(getattr(function, "__func__", function))
    names = _Namespace({**vars(builtins), **getattr(plain, "__globals__", {})})
    cells = getattr(plain, "__closure__", None) or ()
    free = getattr(getattr(plain, "__code__", None), "co_freevars", ())
    for name, cell in zip(free, cells, strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    try:
        # It stands in the source of the method that is being lowered: its author's own code.
        return eval(text, {}, names)  # noqa: S307
    except Exception:  # noqa: BLE001  any code can stand there; an exception means that it is no type
        return Any


class _Unknown(type):
    """Lets `numpy.ndarray`, `Batch[int]` and `Batch | None` stand where the names are unknown."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, item: object) -> Any:
        return cls

    def __or__(cls, other: object) -> Any:
        return Any

    __ror__ = __or__


class _Namespace(dict[str, Any]):
    """The names that a function sees, and a class that accepts anything for all others."""

    def __missing__(self, name: str) -> Any:
        return _Unknown("Unknown", (), {})
