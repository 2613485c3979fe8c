"""The overrides of operations, the calls that may reach them, and the names that can be switched off.

A file kernels/operations/NAME.py declares its overrides as data:

    OVERRIDES = (
        Override(dsl="triton", op_symbol="bmm", dispatch_key="CUDA", condition=fits, run=outer),
    )

The files are read once, at the first call; one that cannot be imported is left out: what it needs is not
installed. Attention backends are no overrides: switches choose among them.
A graph is what torch calls the list of overrides that an operation has at one dispatch key. A call
goes to the first of them that is switched on and whose condition holds, else to the native kernel.
"""

import importlib
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import Any

from msgspec import Struct, field

from mlbackends.base import registry
from mlbackends.base.errors import UnknownName, suggestion
from mlbackends.base.tables import table
from mlbackends.python_native import dsls, filters
from mlbackends.switches import store

ORDER_FUNCTION = "TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN"
#: The operation that torch overrides itself.
ATTENTION = "scaled_dot_product_attention"
#: Its dispatch keys, and the operations that a program may name, with a kernel of ours or without.
_TORCH_NAMES = table("python_native/torch_names")
#: Every key that can be switched off, those of plain tensors first.
DISPATCH_KEYS: tuple[str, ...] = tuple(_TORCH_NAMES["dispatch_keys"])
#: Keys that compute shapes or stand for every device: an override there would call itself.
NOT_OVERRIDABLE = frozenset({"Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd"})
_graphs: "dict[tuple[str, str], tuple[Override, ...]]" = {}
_numbers = count()
#: Whether what the files in kernels/ declare is in the graphs.
_is_registered = False


class Override(Struct, frozen=True, kw_only=True, eq=False):
    """A kernel that takes the place of an operation's native one; a node of its operation's graph.

    dsl_name: what it is written in, "native" for no DSL. op_symbol: the operation as torch names it,
    with its overload where it is not the default ("topk.values"). dispatch_key: such as "CUDA".
    cond_fn: takes the arguments of a call and tells whether the kernel supports it; None for always.
    impl_fn: the kernel. The names are torch's, so that a user's ordering function reads both.
    number: unique in the process.
    """

    dsl_name: str
    op_symbol: str
    dispatch_key: str
    impl_fn: Any
    cond_fn: Any = None
    number: int = field(default_factory=_numbers.__next__)

    @property
    def node_id(self) -> str:
        """The operation, the DSL and the number, as torch puts them together."""
        return f"{self.op_symbol.replace('.', '_')}_{self.dsl_name}_{self.number}"

    @property
    def unconditional_override(self) -> bool:
        """Whether it supports every call."""
        return self.cond_fn is None

    @property
    def active(self) -> bool:
        """Whether neither its DSL nor its operation nor its dispatch key is switched off."""
        return filters.is_enabled(self.dsl_name, self.op_symbol, self.dispatch_key)


def call(
    op_symbol: str,
    dispatch_key: str,
    native_kernel: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Run the first override that is switched on and whose condition holds, else the native kernel.

    What a condition or a kernel raises reaches the caller: it is no reason to try the next.
    """
    register()
    for node in nodes(op_symbol, dispatch_key):
        if node.active and (node.cond_fn is None or node.cond_fn(*args, **kwargs)):
            return node.impl_fn(*args, **kwargs)
    return native_kernel(*args, **kwargs)


def get_dsl_operations(dsl_name: str) -> list[str]:
    """Return the operations that a DSL overrides on this machine, sorted; what is off counts too."""
    register()
    return sorted({node.op_symbol for node in every_node() if node.dsl_name == dsl_name})


def nodes(op_symbol: str, dispatch_key: str) -> tuple[Override, ...]:
    """Return the overrides that an operation has at a dispatch key, switched off ones as well."""
    return _graphs.get((op_symbol, dispatch_key), ())


def every_node() -> list[Override]:
    """Return every override that is registered."""
    return [node for graph in list(_graphs.values()) for node in graph]


def add(override: Override) -> None:
    """Add an override behind those that the operation has at that dispatch key.

    Raises TypeError for what is no text or function, ValueError for a blank name and a key at which
    nothing can be overridden, UnknownName (a LookupError) for a key that torch does not have.
    """
    for attribute in ("dsl_name", "op_symbol", "dispatch_key"):
        name = getattr(override, attribute)
        if not isinstance(name, str):
            raise TypeError(f"{attribute} must be a str, got {type(name).__name__}")
        if not name.strip():
            raise ValueError(f"{attribute} must not be blank")
    for function in (override.impl_fn, override.cond_fn or override.impl_fn):
        if not callable(function):
            raise TypeError(f"an override needs functions, got {type(function).__name__}")
    key = override.dispatch_key
    if key in NOT_OVERRIDABLE:
        raise ValueError(
            f"nothing can be overridden at the dispatch key {key!r}, where an override "
            "would call itself; it must be one of a device, such as 'CPU' or 'CUDA'"
        )
    if key not in DISPATCH_KEYS:
        raise UnknownName(filters.DISPATCH_KEY, key, DISPATCH_KEYS)
    with filters.lock:
        place = override.op_symbol, key
        _graphs[place] = (*nodes(*place), override)


def reorder(function: Callable[[str, str, list[Override]], object]) -> None:
    """Let a function put each graph into another order.

    function: takes operation, dispatch key and the list of overrides; returns the list in its new
    order, without those that it does not want. Where it raises, or returns anything else, that is
    logged, and the graph stays as it was.
    """
    for (op_symbol, dispatch_key), before in list(_graphs.items()):
        try:
            ordered = function(op_symbol, dispatch_key, list(before))
            chosen = {id(each) for each in ordered} if isinstance(ordered, list) else set()
            if not isinstance(ordered, list):
                raise TypeError(f"it must return a list, got {type(ordered).__name__}")  # noqa: TRY301
            if len(chosen) < len(ordered) or not chosen <= {id(node) for node in before}:
                raise ValueError("it returned what it was not given, or one override twice")  # noqa: TRY301
        except Exception as error:
            logging.getLogger(__name__).warning(
                "the order of the overrides of %s at %s stays as it was; the ordering function: %r",
                op_symbol,
                dispatch_key,
                error,
                exc_info=error,
            )
        else:
            with filters.lock:
                later = nodes(op_symbol, dispatch_key)[len(before) :]
                _graphs[op_symbol, dispatch_key] = (*ordered, *later)


# ---- what the files in kernels/ declare -------------------------------------


def register() -> None:
    """Add the overrides of kernels/operations that can run, then order them as the user's function wants.

    Raises ValueError where TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN names no function.
    """
    global _is_registered  # noqa: PLW0603  once a process
    if _is_registered:
        return
    # Imports are made without the lock: a module on its way in may ask for the same things.
    order, declared = order_function(), declared_overrides()
    problems = []
    with filters.lock:
        if _is_registered:  # by another thread
            return  # type: ignore[unreachable]
        for entry, override in declared:
            dsl = override.dsl_name
            try:
                if dsl not in (dsls.NATIVE, *dsls.DSLS):
                    raise LookupError(f"there is no DSL named {dsl!r}")  # noqa: TRY301
                is_on = not store.read("python_native.disabled")
                if dsl == dsls.NATIVE or (is_on and dsls.is_available(dsl)):
                    add(override)
            except (ValueError, TypeError, LookupError) as error:
                problems.append(f"{entry}: override of {override.op_symbol!r}: {error}")
        _is_registered = True
        if order is not None:
            reorder(order)
    for problem in problems:
        warnings.warn(f"{problem}; the override is left out", stacklevel=2)


def order_function() -> Callable[..., Any] | None:
    """Return the function that orders the overrides, as "package.module.function" names it.

    Raises ValueError where that is no function which can be imported.
    """
    path = os.environ.get(ORDER_FUNCTION, "")
    if not path:
        return None
    module, _, name = path.rpartition(".")
    try:
        # Not pkgutil's resolve_name: it prefers a module of that name, and hides why one was not imported.
        function = getattr(importlib.import_module(module), name)
        if not callable(function):
            raise TypeError(f"it is a {type(function).__name__}, not a function")  # noqa: TRY301
    except Exception as error:
        raise ValueError(f"{ORDER_FUNCTION} is {path!r}, which cannot be used: {error}") from error
    return function  # type: ignore[no-any-return]


@cache
def declared_overrides() -> tuple[tuple[str, Override], ...]:
    """Return every override that a file in kernels/operations declares, behind the file's name."""
    found: list[tuple[str, Override]] = []
    for entry in registry.names("mlbackends_kernels.operations"):
        try:
            module = registry.load("mlbackends_kernels.operations", entry)
        except ImportError as error:
            if (error.name or "").partition(".")[0].startswith("mlbackends"):
                raise
            continue
        declared = getattr(module, "OVERRIDES", ())
        if isinstance(declared, tuple) and all(isinstance(each, Override) for each in declared):
            found += [(module.__name__, each) for each in declared]
        else:
            warnings.warn(f"{module.__name__}: OVERRIDES is not a tuple of Override", stacklevel=2)
    return tuple(found)


# ---- names ------------------------------------------------------------------


def valid_names(kind: str, *, with_kernels: bool = True) -> tuple[str, ...]:
    """Return the names of one kind that have an effect when they are switched off, sorted.

    These are the names that a kernel is declared with, and of the operations that torch itself overrides.
    with_kernels: also those of the files in kernels/, which have to be imported for it.
    """
    if kind == filters.DISPATCH_KEY:
        return DISPATCH_KEYS
    is_dsl = kind == filters.DSL
    found = {*dsls.DSLS, dsls.NATIVE} if is_dsl else {*_TORCH_NAMES["operations"], ATTENTION}
    if with_kernels:
        register()
        if is_dsl:
            found |= {node.dsl_name for node in every_node()}
        else:
            found |= {node.op_symbol for node in every_node()}
            found |= {override.op_symbol for _, override in declared_overrides()}
    return tuple(sorted(found))


def checked(kind: str, names: Sequence[object]) -> tuple[str, ...]:
    """Return names of one kind as they are; warn of one that is not valid, and is near to one that is.

    Raises TypeError for what is no str.
    """
    valid = valid_names(kind, with_kernels=False)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{kind} names must be str, got {type(name).__name__}")
        if name and name not in valid and name not in (valid := valid_names(kind)):
            near = suggestion(name, valid)
            if near:
                warnings.warn(f"there is no {kind} named {name!r}{near}", stacklevel=4)
    return tuple(map(str, names))
