"""Switches for kernels that are written in a Python DSL, by DSL, by operation and by dispatch key.

    python_native.triton.enabled = False          # no kernel written in Triton
    python_native.disable_operations("bmm")       # no DSL's kernel for this operation
    with python_native.operations_disabled("bmm"): ...

This library has no kernels in a DSL. Names, values and errors are torch's, so that a program written for
torch.backends.python_native runs, and `backends run --set python_native.disabled=true` reaches torch itself.
The state belongs to the process: all threads share it. Each DSL has a controller, as python_native.triton.
Source: torch 2.15, torch/backends/python_native and torch/_native.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from mlbackends.switches import store
from mlbackends.switches.modules import PropModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.version import Version

    from mlbackends.host.host import Host
    from mlbackends.host.python.packages import Distribution

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

#: For each DSL: the distributions that may contain it, preferred first; the modules that it must have;
#: the supported versions, of which one clause must hold. Its kernels need an NVIDIA driver, those of
#: FlyDSL AMD's runtime. torch has helion since 2.14 and flydsl since 2.15.
DSLS = {
    "cutedsl": (("nvidia-cutlass-dsl",), ("cutlass", "tvm_ffi"), ("==4.6.2", "==4.7.1", "==4.8.0")),
    "flydsl": (("flydsl",), ("flydsl",), (">=0.3,<0.4",)),
    "helion": (("helion",), ("helion", "triton"), (">=1.2.0",)),
    "triton": (
        ("triton", "pytorch-triton", "triton-nightly", "triton-windows"),
        ("triton",),
        (">=3.6.dev0,<4",),
    ),
}
_dsls_off: set[str] = set()
_operations_off: set[str] = set()


def get_dsl_operations(dsl_name: str, lib_symbol: str = "aten") -> list[str]:
    """Return the operations of a namespace for which a DSL has kernels here: none."""
    del dsl_name, lib_symbol
    return []


def disable_operations(*op_symbols: str) -> None:
    """Disable every DSL's kernels for some operations."""
    _operations_off.update(op_symbols)


def enable_operations(*op_symbols: str) -> None:
    """Enable some operations again. A DSL that is disabled stays so."""
    _operations_off.difference_update(op_symbols)


def disable_dispatch_keys(*dispatch_keys: str) -> None:
    """Accept dispatch keys, such as "CUDA"; without kernels there is nothing to disable."""


def enable_dispatch_keys(*dispatch_keys: str) -> None:
    """Accept dispatch keys; without kernels there is nothing to enable."""


@contextmanager
def operations_disabled(*op_symbols: str) -> Iterator[None]:
    """Disable some operations inside a block; afterwards those that were enabled before are enabled again."""
    enabled = set(op_symbols) - _operations_off
    disable_operations(*op_symbols)
    try:
        yield
    finally:
        enable_operations(*enabled)


def is_operation_disabled(op_symbol: str) -> bool:
    """Return whether an operation itself is disabled; its DSLs do not count."""
    return op_symbol in _operations_off


def is_dsl_disabled(dsl_name: str) -> bool:
    """Return whether a DSL itself is disabled."""
    return dsl_name in _dsls_off


class DSLController:
    """One DSL: whether this machine can use it, and whether it is enabled. Neither depends on the other."""

    __slots__ = ("_dsl_name",)

    def __init__(self, dsl_name: str) -> None:
        self._dsl_name = dsl_name

    def __repr__(self) -> str:
        state = "available" if self.available else "unavailable"
        return f"DSLController({self.name}, {state}, {'enabled' if self.enabled else 'disabled'})"

    @property
    def name(self) -> str:
        """The name of the DSL."""
        return self._dsl_name

    @property
    def available(self) -> bool:
        """Whether the DSL is installed in a supported version, together with the driver that it needs."""
        return _is_available(self._dsl_name)

    @property
    def version(self) -> Version | None:
        """The installed version; None if the DSL is not installed or its version is invalid."""
        from packaging.version import InvalidVersion, Version

        from mlbackends.host.host import Host

        installed = _installed(self._dsl_name, Host())
        try:
            return Version(installed.version) if installed else None
        except InvalidVersion:
            return None

    @property
    def backend(self) -> str:
        """What Helion compiles through; any other DSL has no choice and raises AttributeError."""
        if self._dsl_name != "helion":
            raise AttributeError(f"{self._dsl_name} DSL has no configurable backend")
        return _helion_backend()

    @property
    def enabled(self) -> bool:
        """Whether the DSL is enabled. After disable_global_flags() it cannot be assigned, as in torch."""
        return not is_dsl_disabled(self._dsl_name)

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
        """Disable every kernel of the DSL."""
        _dsls_off.add(self._dsl_name)

    def enable(self) -> None:
        """Enable the kernels of the DSL again."""
        _dsls_off.discard(self._dsl_name)

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Disable the DSL inside a block; afterwards it is enabled if it was before."""
        was_enabled = self.enabled
        self.disable()
        try:
            yield
        finally:
            if was_enabled:
                self.enable()


_controller = cache(DSLController)


@cache
def _is_available(dsl_name: str) -> bool:
    from mlbackends.host.host import Host

    return not dsl_unavailable_reason(dsl_name, Host())


def dsl_unavailable_reason(dsl_name: str, host: Host) -> str:
    """Return what a DSL's kernels lack on a machine, "" if they can run there.

    Only files are read: importing Triton takes seconds, and opens the driver.
    """
    from mlbackends.base.specifiers import satisfies
    from mlbackends.host.python.packages import module_location
    from mlbackends.libraries import amd
    from mlbackends.libraries.cuda.driver import driver_libraries
    from mlbackends.libraries.search import libraries_named

    distributions, modules, versions = DSLS[dsl_name]
    installed = _installed(dsl_name, host)
    if installed is None:
        return f"{distributions[0]} is not installed"
    for module in modules:
        if not module_location(host, module):
            return f"{installed.name} is installed, but has no module {module} to import"
    if not store.read("python_native.skip_version_check") and not any(
        satisfies(installed.version, clauses) for clauses in versions
    ):
        return f"{installed.name} is {installed.version}; needed is {' or '.join(versions)}"
    if dsl_name == "helion" and _helion_backend() != "triton":
        return f"HELION_BACKEND is {_helion_backend()}; torch supports triton alone"
    if dsl_name == "flydsl":
        places = {"homes": amd.HOMES, "folders": amd.FOLDERS, "wheels": amd.wheels(host)}
        hip = libraries_named(host, "HIP", "libamdhip64", **places)
        return "" if hip else "the HIP runtime (libamdhip64.so) is not installed"
    if not any(library.wins for library in driver_libraries(host, "cuda_driver", "libcuda")):
        return "the CUDA driver library (libcuda.so.1) is not installed"
    return ""


def _helion_backend() -> str:
    return os.environ.get("HELION_BACKEND", "triton")


def _installed(dsl_name: str, host: Host) -> Distribution | None:
    from mlbackends.host.python.packages import distribution

    return next(filter(None, (distribution(host, name) for name in DSLS[dsl_name][0])), None)


class PythonNativeModule(PropModule):
    """The class of this module: a DSL's name reads as its controller, and nothing can be overwritten."""

    @property
    def all_dsls(self) -> list[str]:
        """The DSLs that torch knows."""
        return list(DSLS)

    @property
    def available_dsls(self) -> list[str]:
        """The DSLs that this machine can use."""
        return list(filter(_is_available, DSLS))

    def __getattr__(self, attr: str) -> object:
        return _controller(attr) if attr in DSLS else super().__getattr__(attr)

    def __setattr__(self, attr: str, value: object) -> None:
        if attr in DSLS:
            raise AttributeError(
                f"{self.__name__}.{attr} cannot be replaced; set {self.__name__}.{attr}.enabled",
                name=attr,
                obj=self,
            )
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        shown = {name for name in super().__dir__() if name.startswith("__")}
        return sorted({*shown, *__all__, *DSLS})


sys.modules[__name__].__class__ = PythonNativeModule
