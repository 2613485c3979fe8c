"""Switches for kernels that are written in a DSL, by DSL, by operation and by dispatch key.

    python_native.triton.enabled = False          # none of Triton's kernels
    python_native.disable_operations("bmm")       # no DSL's kernel for this operation
    with python_native.operations_disabled("bmm"): ...

What is switched off is so for the whole process, and the native kernels do the work. There is a
controller for each DSL that is registered: `python_native.triton`, `python_native.cutedsl`.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager

from mlbackends.python_native import dsl_registry, filters
from mlbackends.python_native.dsl_controller import DSLController, controller
from mlbackends.switches.modules import PropModule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    all_dsls: list[str]
    available_dsls: list[str]
    cutedsl: DSLController
    triton: DSLController

__all__ = [
    "DSLController",
    "PythonNativeModule",
    "all_dsls",
    "available_dsls",
    "disable_dispatch_keys",
    "disable_operations",
    "enable_dispatch_keys",
    "enable_operations",
    "get_dsl_operations",
    "is_dsl_disabled",
    "is_operation_disabled",
    "operations_disabled",
]


def get_dsl_operations(dsl_name: str) -> list[str]:
    """Return the operations that a DSL has kernels for on this machine, sorted.

    What is switched off is among them. Raises UnknownName (a LookupError) for a DSL that nobody
    registered.
    """
    from mlbackends.python_native import calls, known_names

    known_names.checked(filters.DSL, (dsl_name,))
    return calls.get_dsl_operations(dsl_name)


def disable_operations(*op_symbols: str) -> None:
    """Switch off every DSL's kernels for some operations.

    Raises UnknownName (a LookupError) for an operation that nobody overrides, and switches nothing.
    """
    from mlbackends.python_native import known_names

    filters.disable(filters.OPERATION, known_names.checked(filters.OPERATION, op_symbols))


def enable_operations(*op_symbols: str) -> None:
    """Switch some operations on again. A DSL or a dispatch key that is off stays off."""
    from mlbackends.python_native import known_names

    filters.enable(filters.OPERATION, known_names.checked(filters.OPERATION, op_symbols))


def disable_dispatch_keys(*dispatch_keys: str) -> None:
    """Switch off every DSL's kernels at some dispatch keys, such as "CUDA"."""
    from mlbackends.python_native import known_names

    filters.disable(filters.DISPATCH_KEY, known_names.checked(filters.DISPATCH_KEY, dispatch_keys))


def enable_dispatch_keys(*dispatch_keys: str) -> None:
    """Switch some dispatch keys on again. A DSL or an operation that is off stays off."""
    from mlbackends.python_native import known_names

    filters.enable(filters.DISPATCH_KEY, known_names.checked(filters.DISPATCH_KEY, dispatch_keys))


@contextmanager
def operations_disabled(*op_symbols: str) -> Iterator[None]:
    """Switch some operations off for the body; afterwards those are on again that were on before."""
    from mlbackends.python_native import known_names

    names = known_names.checked(filters.OPERATION, op_symbols)
    with filters.disabled(filters.OPERATION, names):
        yield


def is_operation_disabled(op_symbol: str) -> bool:
    """Tell whether an operation itself is switched off, whatever its DSLs are."""
    from mlbackends.python_native import known_names

    known_names.checked(filters.OPERATION, (op_symbol,))
    return not filters.is_on(filters.OPERATION, op_symbol)


def is_dsl_disabled(dsl_name: str) -> bool:
    """Tell whether a DSL itself is switched off; "native" is one too."""
    from mlbackends.python_native import known_names

    known_names.checked(filters.DSL, (dsl_name,))
    return not filters.is_on(filters.DSL, dsl_name)


class PythonNativeModule(PropModule):
    """The class of the module: a DSL's name reads as its controller, and nothing is overwritten."""

    @property
    def all_dsls(self) -> list[str]:
        """The DSLs that are registered."""
        return list(dsl_registry.list_all_dsls())

    @property
    def available_dsls(self) -> list[str]:
        """Those of them that can be used on this machine."""
        return list(dsl_registry.list_available_dsls())

    def __getattr__(self, attr: str) -> object:
        return controller(attr) if _is_dsl(attr) else super().__getattr__(attr)

    def __setattr__(self, attr: str, value: object) -> None:
        if _is_dsl(attr):
            raise AttributeError(
                f"{self.__name__}.{attr} cannot be replaced; set {self.__name__}.{attr}.enabled",
                name=attr,
                obj=self,
            )
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        shown = {name for name in super().__dir__() if name.startswith("__")}
        return sorted({*shown, *__all__, *dsl_registry.list_all_dsls()})


def _is_dsl(name: str) -> bool:
    return name in dsl_registry.list_all_dsls()


sys.modules[__name__].__class__ = PythonNativeModule
