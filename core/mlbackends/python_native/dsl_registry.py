"""The DSLs that there are, and whether they can be used on this machine.

A DSL is any object, a module for one, with the functions of `DslModule`. What it answers is asked
once and kept; registering another one under its name asks anew.
"""

from __future__ import annotations

from mlbackends.python_native.dsls import CUTEDSL, TRITON

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class DslModule(Protocol):
        """What a DSL must offer; `mlbackends.python_native.dsls.PackagedDsl` is one."""

        def runtime_available(self) -> bool: ...  # noqa: D102
        def runtime_version(self) -> Any: ...  # noqa: D102
        def register_op_override(  # noqa: D102
            self,
            lib_symbol: str,
            op_symbol: str,
            dispatch_key: str,
            cond: Any,
            impl: Any,
            *,
            allow_multiple_override: bool = False,
            unconditional_override: bool = False,
        ) -> None: ...
        def deregister_op_overrides(self) -> None: ...  # noqa: D102


_NEEDED = (
    "runtime_available",
    "runtime_version",
    "register_op_override",
    "deregister_op_overrides",
)


class _Entry:
    """A DSL and its answers. They die with it: an answer that comes late is nobody else's."""

    def __init__(self, module: DslModule) -> None:
        self.module = module
        self.available: bool | None = None
        self.version: tuple[Any] | None = None


_entries = {"cutedsl": _Entry(CUTEDSL), "triton": _Entry(TRITON)}


def register_dsl(name: str, dsl_module: DslModule) -> None:
    """Add a DSL, or put another in the place of one, which is logged as a warning.

    Raises TypeError where the name is no str or the DSL lacks a function, ValueError where the name
    is blank.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a DSL must be a str, got {type(name).__name__}")
    if not name.strip():
        raise ValueError("the name of a DSL must not be blank")
    if missing := [needed for needed in _NEEDED if not hasattr(dsl_module, needed)]:
        raise TypeError(f"the DSL {name!r} lacks {', '.join(missing)}")
    known = _entries.get(name)
    if known is not None and known.module is dsl_module:
        _log().debug("the DSL %s is registered already", name)
        return
    if known is not None:
        _log().warning("the DSL %s is registered anew, with another module", name)
    _entries[name] = _Entry(dsl_module)


def is_dsl_available(dsl_name: str) -> bool:
    """Tell whether a DSL says that it can be used here. One that nobody registered cannot."""
    entry = _entries.get(dsl_name)
    if entry is None:
        return False
    if entry.available is None:
        try:
            entry.available = bool(entry.module.runtime_available())
        except ImportError:
            _log().debug("the DSL %s cannot be imported", dsl_name, exc_info=True)
            entry.available = False
        except Exception:  # noqa: BLE001  foreign code; the log keeps what it raised
            _log().error("the DSL %s cannot say whether it is there", dsl_name, exc_info=True)
            entry.available = False
    return entry.available


def get_dsl_version(dsl_name: str) -> Any:
    """Return what a DSL gives as its version, None where it has none or nobody registered it."""
    entry = _entries.get(dsl_name)
    if entry is None:
        return None
    if entry.version is None:
        try:
            entry.version = (entry.module.runtime_version(),)
        except Exception:  # noqa: BLE001  foreign code; the log keeps what it raised
            _log().debug("the DSL %s cannot say its version", dsl_name, exc_info=True)
            entry.version = (None,)
    return entry.version[0]


def list_available_dsls() -> tuple[str, ...]:
    """Return the DSLs that can be used here, in the order in which they were registered."""
    return tuple(name for name in list_all_dsls() if is_dsl_available(name))


def list_all_dsls() -> tuple[str, ...]:
    """Return the DSLs that are registered, in that order; "native" is none of them."""
    return tuple(_entries)


def get_dsl_module(name: str) -> DslModule | None:
    """Return the DSL that is registered under a name, None without one."""
    entry = _entries.get(name)
    return entry.module if entry else None


def _log() -> Any:
    import logging

    return logging.getLogger(__name__)
