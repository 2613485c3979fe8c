"""One method of a lowered module: the arguments that it takes and the outputs that it returns.

Taken from the signature and the return annotation of the original method, and saved with the module.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from mlbackends.jit.annotation_text import evaluate
from mlbackends.jit.errors import BadOutput, CallMismatch, JitError, suggestion
from mlbackends.jit.modules import is_module
from mlbackends.jit.return_types import Container, Items, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.jit.return_types import ReturnType

_VARIABLE = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


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
        value = tuple(outputs)
        if isinstance(returns, Items):
            self._check_count(outputs, len(returns.items), backend)
            for index, item in enumerate(returns.items):
                self._check(item, outputs[index], f"output {index} of {self.name}", backend)
            cls: Any = returns.named and returns.named.class_()
            return cls._make(value) if cls else value
        if isinstance(returns, Container) and returns.container.name == "tuple":
            self._check(returns, value, f"the outputs of {self.name}", backend)
            return value
        self._check_count(outputs, 1, backend)
        self._check(returns, outputs[0], f"the output of {self.name}", backend)
        return outputs[0]

    def _check_count(self, outputs: list[Any], count: int, backend: str) -> None:
        if len(outputs) != count:
            raise BadOutput(
                f"Expected {count} elements in a list but found {len(outputs)}: "
                f"{self.name} returns {self.returns} (backend {backend})"
            )

    def _check(self, wanted: ReturnType, value: Any, what: str, backend: str) -> None:
        if not wanted.matches(value):
            raise BadOutput(
                f"{what} is {type(value).__name__}, not {wanted} as the original method promises "
                f"(backend {backend})"
            )


def describe(module: Any, name: str) -> Method:
    """Read one method of a module.

    A method is what the module's class, or a lowered module, lets call by that name; a submodule is
    none. Raises RuntimeError for any other name, and for a method with *args or **kwargs.
    """
    function = getattr(module, name, None)
    held = is_module(function) and not hasattr(type(module), name)
    if not callable(function) or isinstance(function, type) or held:
        raise JitError(f"Method {name!r} is not defined.{suggestion(name, _methods_of(module))}")
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
    returns = _returns(function, signature)
    return Method(name, inspect.Signature(bare), returns)


def _methods_of(module: Any) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_")]


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, with annotations that cannot be evaluated left as they are."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _returns(function: Callable[..., Any], signature: inspect.Signature) -> ReturnType | None:
    annotation: Any = signature.return_annotation
    if annotation is inspect.Signature.empty:
        return None
    annotation = getattr(annotation, "__forward_arg__", annotation)
    return parse(evaluate(annotation, function) if isinstance(annotation, str) else annotation)
