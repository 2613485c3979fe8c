"""Lower a module, or chosen submodules of one, to a backend."""

import reprlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from mlbackends.jit.backend import (
    DebugHandles,
    JitError,
    NotAModule,
    backend_factory,
    preprocess_of,
)
from mlbackends.jit.lowered import Compiled, LoweredModule
from mlbackends.jit.methods import describe
from mlbackends.jit.modules import clone, is_lowered, is_module, replace, submodule


def to_backend(name: str, module: Any, method_compile_spec: dict[str, Any]) -> LoweredModule:
    """Lower a module: the methods that the spec names run on the backend from now on.

    module: what `mlbackends.jit.modules` calls one; it stays as it is. method_compile_spec: a value
    of the backend's own choice for each method; an empty dict or list in it is refused, as nothing
    determines its type. The order is: clone, preprocess, the backend's constructor, is_available,
    and, where it is, is_available again and compile. Where it is not available lowering succeeds
    all the same, with a UserWarning; calls then fail, and loading where it is available works.

    Raises RuntimeError for a name that is not registered (with the nearest one), a method that is
    not defined or cannot be lowered and an empty value of the spec, AttributeError for what is no
    module, TypeError for a name that is not a str or a spec that is not a dict. Nothing has run then.
    """
    for title, argument, kind in (
        ("the name of a backend", name, str),
        ("the method compile spec", method_compile_spec, dict),
    ):
        if not isinstance(argument, kind):
            raise TypeError(f"{title} is a {kind.__name__}, not {type(argument).__name__}")
    preprocess = preprocess_of(name)
    backend_factory(name)
    if not is_module(module):
        raise NotAModule(
            f"{reprlib.repr(module)} is not a module: an object with methods is needed"
        )
    methods = {}
    for method in method_compile_spec:
        if not isinstance(method, str):
            raise JitError(f"the names of methods are str, not {type(method).__name__}")
        if method != "__call__" and hasattr(LoweredModule, method):
            raise JitError(f"Method {method!r} cannot be lowered: the wrapper has its own")
        methods[method] = describe(module, method)
    # Two copies: neither the caller nor the preprocess function changes what is compiled.
    spec, changeable = (
        {method: _copied(value, method) for method, value in method_compile_spec.items()}
        for _ in range(2)
    )
    processed = preprocess(clone(module)[0], changeable, DebugHandles())
    cls = type(module)
    original = (
        module.qualified_name if is_lowered(module) else f"{cls.__module__}.{cls.__qualname__}"
    )
    compiled = Compiled(name, original, processed, spec, methods)
    if compiled.backend.is_available():
        compiled.compile()
    else:
        warnings.warn(
            f"Backend [{name}] is not available. Execution of this Module is still possible by "
            "saving and loading on a device where the backend is available.",
            UserWarning,
            stacklevel=2,
        )
    return LoweredModule(compiled)


def to_backend_selective(module: Any, function: Callable[[Any], Any], names: Iterable[str]) -> Any:
    """Return a clone of a module in which submodules are replaced by function(submodule).

    names: dotted, from the module on ("encoder.attention"); function is mostly a call of to_backend.
    The module itself stays as it is, also when something fails.

    Raises RuntimeError for an object that is not a module, a name that it does not have (with the
    nearest one), an attribute that is data and a parent that is reached by several names, of which
    only one would be lowered; AttributeError where function returns no module; TypeError for other
    arguments.
    """
    if not callable(function):
        raise TypeError(f"what lowers a submodule is a function, not {type(function).__name__}")
    methods = () if isinstance(names, str) else tuple(names)
    if isinstance(names, str) or not all(isinstance(each, str) for each in methods):
        raise TypeError("the submodules to lower are a sequence of names (str)")
    if not is_module(module):
        raise JitError(
            f"Object {reprlib.repr(module)} is not a ScriptModule, nor an object with methods"
        )
    copied, shared = clone(module)
    for name in methods:  # before the first is lowered
        _located(copied, name, shared)
    for name in methods:
        parent, last = _located(copied, name, shared)
        lowered = function(submodule(parent, last))
        if not is_module(lowered):
            raise NotAModule(
                f"the function returned {reprlib.repr(lowered)} for {name!r}, no module"
            )
        replace(parent, last, lowered)
    return copied


def _copied(value: Any, method: str) -> Any:
    """Copy the dicts, lists and tuples of a spec. Raises RuntimeError for one that is empty."""
    if isinstance(value, dict | list) and not value:
        raise JitError(
            f"the compile spec of {method!r} holds an empty {type(value).__name__}; "
            "its type cannot be inferred"
        )
    if isinstance(value, dict):
        return {key: _copied(each, method) for key, each in value.items()}
    if isinstance(value, list | tuple):
        items = [_copied(each, method) for each in value]
        return type(value)(items) if type(value) in {list, tuple} else value
    return value


def _located(root: Any, name: str, shared: set[int]) -> tuple[Any, str]:
    """Return the parent of a submodule and its last name, after a check that all is there."""
    *path, last = name.split(".")
    parent = root
    for depth, part in enumerate(path):
        parent = submodule(parent, part)
        if id(parent) in shared:
            raise JitError(
                "Selective lowering is only supported for module hierarchies with unique parents of "
                f"selected modules; {'.'.join(path[: depth + 1])!r} is shared"
            )
    submodule(parent, last)
    return parent, last
