"""One method of a lowered module: the arguments that it takes and the outputs that it returns.

Taken from the signature and the return annotation of the original method, and saved with the module
without the classes that the annotation names: an output's class is compared by name. An int passes for
a float. Nothing is checked of what Python cannot check (a TypeVar, a protocol), of the items of a list
or a named tuple, and of an annotation that names what exists for type checkers alone.
"""

import abc
import functools
import inspect
import sys
import types
import typing
from typing import Any, NamedTuple

from mlbackends.jit.backend import BadOutput, CallMismatch, JitError, suggestion
from mlbackends.jit.modules import is_module

_VARIABLE = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_PROMOTED = {float: (int,), complex: (int, float)}


class Output(NamedTuple):
    """One output. text: its annotation. classes: names, of which its class or a base has one; () for any."""

    text: str
    classes: tuple[str, ...]


class Returns(NamedTuple):
    """What a method returns.

    outputs: () for a tuple of any length. kind: "value" for one output as it is, "tuple", or the
    name of the class of a named tuple.
    """

    text: str
    outputs: tuple[Output, ...]
    kind: str = "value"


class Method(NamedTuple):
    """The signature and the promise of one method.

    returns is None where the original has no return annotation that can be evaluated: then one
    output is returned as it is, several as a tuple and none as None.
    """

    name: str
    signature: inspect.Signature
    returns: Returns | None

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

        Raises BadOutput where their number or a class is not what the original method promises.
        """
        if not isinstance(outputs, list):
            raise BadOutput(
                f"backend {backend} returned {type(outputs).__name__} from execute; "
                "a list of outputs is needed"
            )
        if self.returns is None:
            return outputs[0] if len(outputs) == 1 else tuple(outputs) or None
        text, promised, kind = self.returns
        if promised and len(outputs) != len(promised):
            raise BadOutput(
                f"Expected {len(promised)} elements in a list but found {len(outputs)}: "
                f"{self.name} returns {text} (backend {backend})"
            )
        for at, (promise, output) in enumerate(zip(promised, outputs, strict=False)):
            if promise.classes and not set(_names(*type(output).__mro__)) & set(promise.classes):
                title = "the output" if kind == "value" else f"output {at}"
                raise BadOutput(
                    f"{title} of {self.name} is {type(output).__name__}, not {promise.text} as the "
                    f"original method promises (backend {backend})"
                )
        if kind == "value":
            return outputs[0]
        module, _, name = kind.partition(":")
        # None if it is not a named tuple, or its module is not imported in this process.
        named: Any = functools.reduce(
            lambda found, part: getattr(found, part, None), name.split("."), sys.modules.get(module)
        )
        return named._make(outputs) if named else tuple(outputs)


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
    # A method that was lowered already has a promise in the place of the annotation.
    annotation = signature.return_annotation
    returns = annotation if isinstance(annotation, Returns) else returns_of(annotation)
    return Method(name, inspect.Signature(bare, return_annotation=returns), returns)


def _signature(function: Any) -> inspect.Signature:
    """Return the signature; annotations stay texts where one of them cannot be evaluated."""
    try:
        return inspect.signature(function, eval_str=True)
    except (TypeError, ValueError):
        raise
    except Exception:  # noqa: BLE001  an annotation may contain any code
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(function, annotation_format=Format.STRING)
        return inspect.signature(function)


def returns_of(annotation: Any) -> Returns | None:
    """Return what an annotation promises; None for none and for a text that was not evaluated."""
    if annotation is inspect.Signature.empty or isinstance(annotation, str):
        return None
    text = inspect.formatannotation(annotation)
    cls, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if isinstance(cls, type) and issubclass(cls, tuple):
        fields = getattr(cls, "_fields", None)
        if fields is not None:
            outputs = tuple(Output(field, ()) for field in fields)
            return Returns(text, outputs, *_names(cls))
        is_fixed = arguments[-1:] != (...,)
        return Returns(text, tuple(map(_output, arguments)) if is_fixed else (), "tuple")
    return Returns(text, (_output(annotation),))


def _output(annotation: Any) -> Output:
    return Output(inspect.formatannotation(annotation), _classes(annotation))


def _classes(annotation: Any) -> tuple[str, ...]:
    """Return the names of the classes that an annotation allows, () for any."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        options = [_classes(each) for each in arguments]
        return sum(options, ()) if all(options) else ()
    if origin is typing.Annotated:
        return _classes(arguments[0])
    cls = types.NoneType if annotation is None else origin or annotation
    if not isinstance(cls, type) or isinstance(cls, abc.ABCMeta) or cls in (Any, object):
        return ()
    return _names(cls, *_PROMOTED.get(cls, ()))


def _names(*classes: type) -> tuple[str, ...]:
    return tuple(f"{cls.__module__}:{cls.__qualname__}" for cls in classes)
