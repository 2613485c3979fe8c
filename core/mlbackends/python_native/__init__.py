"""Switches for kernels that are written in a DSL, by DSL, by operation and by dispatch key.

    python_native.triton.enabled = False          # none of Triton's kernels
    python_native.disable_operations("bmm")       # no DSL's kernel for this operation
    with python_native.operations_disabled("bmm"): ...

What is switched off is so for the whole process, and the native kernels do the work. There is a
controller for each DSL: `python_native.triton`, `python_native.cutedsl`, ... A name that no kernel has is
taken, to no effect, as in torch; a warning tells where another is near.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache

from mlbackends.python_native import dsls, filters
from mlbackends.switches import store
from mlbackends.switches.modules import PropModule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    all_dsls: list[str]
    available_dsls: list[str]
    cutedsl: DSLController
    flydsl: DSLController
    helion: DSLController
    triton: DSLController

__all__ = [
    "DSLController", "PythonNativeModule", "all_dsls", "available_dsls", "disable_dispatch_keys",
    "disable_operations", "enable_dispatch_keys", "enable_operations", "get_dsl_operations",
    "is_dsl_disabled", "is_operation_disabled", "operations_disabled",
]  # fmt: skip


def get_dsl_operations(dsl_name: str, lib_symbol: str = "aten") -> list[str]:
    """Return the operations of a namespace that a DSL has kernels for on this machine, sorted.

    What is switched off is among them. All kernels of ours are for operations of aten.
    """
    from mlbackends.python_native import overrides

    found = overrides.get_dsl_operations(*_checked(filters.DSL, dsl_name))
    return found if lib_symbol == "aten" else []


def disable_operations(*op_symbols: str) -> None:
    """Switch off every DSL's kernels for some operations."""
    filters.disable(filters.OPERATION, _checked(filters.OPERATION, *op_symbols))


def enable_operations(*op_symbols: str) -> None:
    """Switch some operations on again. A DSL or a dispatch key that is off stays off."""
    filters.enable(filters.OPERATION, _checked(filters.OPERATION, *op_symbols))


def disable_dispatch_keys(*dispatch_keys: str) -> None:
    """Switch off every DSL's kernels at some dispatch keys, such as "CUDA"."""
    filters.disable(filters.DISPATCH_KEY, _checked(filters.DISPATCH_KEY, *dispatch_keys))


def enable_dispatch_keys(*dispatch_keys: str) -> None:
    """Switch some dispatch keys on again. A DSL or an operation that is off stays off."""
    filters.enable(filters.DISPATCH_KEY, _checked(filters.DISPATCH_KEY, *dispatch_keys))


@contextmanager
def operations_disabled(*op_symbols: str) -> Iterator[None]:
    """Switch some operations off for the body; afterwards those are on again that were on before."""
    with filters.disabled(filters.OPERATION, _checked(filters.OPERATION, *op_symbols)):
        yield


def is_operation_disabled(op_symbol: str) -> bool:
    """Tell whether an operation itself is switched off, whatever its DSLs are."""
    return not filters.is_on(filters.OPERATION, *_checked(filters.OPERATION, op_symbol))


def is_dsl_disabled(dsl_name: str) -> bool:
    """Tell whether a DSL itself is switched off; "native" is one too."""
    return not filters.is_on(filters.DSL, *_checked(filters.DSL, dsl_name))


def _checked(kind: str, *names: str) -> tuple[str, ...]:
    from mlbackends.python_native import overrides

    return overrides.checked(kind, names)


class DSLController:
    """One DSL: whether it can be used on this machine, and whether it is switched on.

    The two do not depend on each other: a DSL that is not there is switched on as well.
    """

    __slots__ = ("_dsl_name",)
    _dsl_name: str

    def __init__(self, dsl_name: str) -> None:
        object.__setattr__(self, "_dsl_name", dsl_name)

    def __repr__(self) -> str:
        state = "available" if self.available else "unavailable"
        switched = "enabled" if self.enabled else "disabled"
        return f"DSLController({self.name}, {state}, {switched})"

    def __reduce__(self) -> tuple[Callable[[str], DSLController], tuple[str]]:
        return controller, (self._dsl_name,)  # a copy is the same controller

    def __setattr__(self, name: str, value: object) -> None:
        if name != "enabled":
            from mlbackends.base.errors import nearest

            near = nearest(name, ("enabled",))
            hint = "; did you mean 'enabled'?" if near else "; only 'enabled' can be set"
            raise AttributeError(f"cannot set {name!r} of a DSLController{hint}")
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The name of the DSL."""
        return self._dsl_name

    @property
    def available(self) -> bool:
        """Whether the DSL can be used on this machine."""
        return dsls.is_available(self._dsl_name)

    @property
    def version(self) -> Any:
        """The version that is installed, None without one."""
        return dsls.version(self._dsl_name)

    @property
    def backend(self) -> str:
        """What the DSL compiles through; helion alone has a choice, others raise AttributeError."""
        if self._dsl_name != "helion":
            raise AttributeError(f"{self._dsl_name} DSL has no configurable backend")
        return dsls.helion_backend()

    @property
    def enabled(self) -> bool:
        """Whether the DSL is switched on. It cannot be set after disable_global_flags(), as in torch."""
        return filters.is_on(filters.DSL, self._dsl_name)

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if store.frozen():
            raise RuntimeError(
                f"not allowed to set {self._dsl_name} DSL flags after disable_global_flags; "
                "please use enable(), disable() or the disabled() context manager instead"
            )
        if not isinstance(value, bool):
            raise TypeError(f"enabled must be a bool, got {type(value).__name__}")
        if value:
            self.enable()
        else:
            self.disable()

    def disable(self) -> None:
        """Take every kernel of the DSL out of dispatch."""
        filters.disable(filters.DSL, (self._dsl_name,))

    def enable(self) -> None:
        """Take the kernels of the DSL back into dispatch."""
        filters.enable(filters.DSL, (self._dsl_name,))

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Take the DSL out of dispatch for the body; it is back afterwards if it was in before."""
        with filters.disabled(filters.DSL, (self._dsl_name,)):
            yield


@cache
def controller(dsl_name: str) -> DSLController:
    """Return the controller of a DSL, the same one each time."""
    return DSLController(dsl_name)


class PythonNativeModule(PropModule):
    """The class of the module: a DSL's name reads as its controller, and nothing is overwritten."""

    @property
    def all_dsls(self) -> list[str]:
        """The DSLs that there are."""
        return list(dsls.DSLS)

    @property
    def available_dsls(self) -> list[str]:
        """Those of them that can be used on this machine."""
        return list(filter(dsls.is_available, dsls.DSLS))

    def __getattr__(self, attr: str) -> object:
        return controller(attr) if attr in dsls.DSLS else super().__getattr__(attr)

    def __setattr__(self, attr: str, value: object) -> None:
        if attr in dsls.DSLS:
            raise AttributeError(
                f"{self.__name__}.{attr} cannot be replaced; set {self.__name__}.{attr}.enabled",
                name=attr,
                obj=self,
            )
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        shown = {name for name in super().__dir__() if name.startswith("__")}
        return sorted({*shown, *__all__, *dsls.DSLS})


sys.modules[__name__].__class__ = PythonNativeModule
