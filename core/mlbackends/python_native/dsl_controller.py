"""The handle by which a user switches one DSL."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache

from mlbackends.python_native import dsl_registry, filters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class DSLController:
    """One DSL: whether it can be used on this machine, and whether it is switched on.

    The two do not depend on each other: a DSL that is not there is switched on as well.
    """

    __slots__ = ("_dsl_name",)
    _dsl_name: str

    def __init__(self, dsl_name: str) -> None:
        object.__setattr__(self, "_dsl_name", dsl_name)

    def __repr__(self) -> str:
        there = "available" if self.available else "unavailable"
        switched = "enabled" if self.enabled else "disabled"
        return f"DSLController({self.name}, {there}, {switched})"

    def __reduce__(self) -> tuple[Callable[[str], DSLController], tuple[str]]:
        return controller, (self._dsl_name,)  # a copy is the same controller

    def __setattr__(self, name: str, value: object) -> None:
        if name != "enabled":
            from mlbackends.model.errors import nearest

            near = nearest(name, ("enabled",))
            hint = "; did you mean 'enabled'?" if near else "; only 'enabled' can be set"
            raise AttributeError(f"cannot set {name!r} of a DSLController{hint}")
        object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The name that the DSL is registered under."""
        return self._dsl_name

    @property
    def available(self) -> bool:
        """Whether the DSL can be used on this machine."""
        return dsl_registry.is_dsl_available(self._dsl_name)

    @property
    def version(self) -> Any:
        """The version that is installed, None without one."""
        return dsl_registry.get_dsl_version(self._dsl_name)

    @property
    def enabled(self) -> bool:
        """Whether the DSL is switched on. Setting it obeys disable_global_flags(), as in torch."""
        return filters.is_on(filters.DSL, self._dsl_name)

    @enabled.setter
    def enabled(self, value: bool) -> None:
        from mlbackends.switches import store

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
        self._deregister()
        filters.disable(filters.DSL, (self._dsl_name,))

    def enable(self) -> None:
        """Take the kernels of the DSL back into dispatch."""
        filters.enable(filters.DSL, (self._dsl_name,))

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Take the DSL out of dispatch for the body; it is back afterwards if it was in before."""
        with filters.disabled(filters.DSL, (self._dsl_name,)):
            self._deregister()
            yield

    def _deregister(self) -> None:
        """Tell the DSL itself, which may have more to do than the filters know."""
        module = dsl_registry.get_dsl_module(self._dsl_name)
        if module is not None:
            module.deregister_op_overrides()


@cache
def controller(dsl_name: str) -> DSLController:
    """Return the controller of a DSL, the same one each time."""
    return DSLController(dsl_name)
