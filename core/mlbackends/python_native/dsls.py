"""The languages for kernels that are known from the start: CuTe DSL and Triton.

Whether one is there is read from the files that are installed: importing Triton takes seconds, and
touches the driver.
Source: torch 2.13, torch/_native, for the versions.
"""

from __future__ import annotations

from mlbackends.python_native import environment, filters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from packaging.version import Version

    from mlbackends.host.host import Host
    from mlbackends.host.python.packages import Distribution

NATIVE = "native"
"""The hidden DSL of overrides that are written in none. It can be filtered, and is never listed."""


class PackagedDsl:
    """A DSL that is a Python package, and whose kernels run on NVIDIA's devices.

    distributions: those that may bring it, in order of preference. modules: what must be there to be
    imported, its own first. versions: clauses of which one must hold, such as ">=3.6,<4".
    """

    def __init__(
        self,
        name: str,
        distributions: tuple[str, ...],
        modules: tuple[str, ...],
        versions: tuple[str, ...],
    ) -> None:
        self.name = name
        self._distributions = distributions
        self._modules = modules
        self._versions = versions

    def __repr__(self) -> str:
        return f"PackagedDsl({self.name!r})"

    def runtime_available(self) -> bool:
        """Tell whether it is installed, in a version that serves, beside a CUDA driver library."""
        return not self.unavailable_reason()

    def runtime_version(self) -> Version | None:
        """Return the version that is installed, None where it is not or its version is garbage."""
        from mlbackends.host.host import Host

        dist = self._installed(Host())
        if dist is None:
            return None
        from packaging.version import InvalidVersion, Version

        try:
            return Version(dist.version)
        except InvalidVersion:
            return None

    def unavailable_reason(self, host: Host | None = None) -> str:
        """Return what its kernels lack on this machine, "" where they can run."""
        from mlbackends.host.host import Host
        from mlbackends.host.python.packages import module_location
        from mlbackends.host.python.requirements import satisfies

        host = host or Host()
        dist = self._installed(host)
        if dist is None:
            return f"{self._distributions[0]} is not installed"
        for module in self._modules:
            if not module_location(host, module):
                return f"{dist.name} is installed, and there is no module {module} to import"
        if not environment.is_one(environment.SKIP_VERSION_CHECK) and not any(
            satisfies(dist.version, clauses) for clauses in self._versions
        ):
            return f"{dist.name} is {dist.version}; needed is {' or '.join(self._versions)}"
        from mlbackends.libraries.cuda.driver import driver_libraries

        if not any(library.wins for library in driver_libraries(host, "cuda_driver", "libcuda")):
            return "there is no CUDA driver library (libcuda.so.1)"
        return ""

    def register_op_override(
        self,
        lib_symbol: str,
        op_symbol: str,
        dispatch_key: str,
        cond: Callable[..., object] | None,
        impl: Callable[..., Any],
        *,
        allow_multiple_override: bool = False,
        unconditional_override: bool = False,
    ) -> None:
        """Register an override of this DSL where it can run; elsewhere there is nothing to do."""
        from mlbackends.python_native import dsl_registry, override_graph

        if environment.is_one(environment.DISABLE_JIT):
            return
        if not dsl_registry.is_dsl_available(self.name):
            return
        override_graph.register_op_override(
            self.name,
            lib_symbol,
            op_symbol,
            dispatch_key,
            cond,
            impl,
            allow_multiple_override=allow_multiple_override,
            unconditional_override=unconditional_override,
        )

    def deregister_op_overrides(self) -> None:
        """Switch every override of this DSL off."""
        filters.disable(filters.DSL, (self.name,))

    def _installed(self, host: Host) -> Distribution | None:
        from mlbackends.host.python.packages import distribution

        found = (distribution(host, name) for name in self._distributions)
        return next((dist for dist in found if dist), None)


CUTEDSL = PackagedDsl(
    "cutedsl",
    ("nvidia-cutlass-dsl",),
    ("cutlass", "tvm_ffi"),
    ("==4.4.1", "==4.4.2", "==4.5.2"),
)
TRITON = PackagedDsl(
    "triton",
    ("triton", "pytorch-triton", "triton-nightly", "triton-windows"),
    ("triton",),
    (">=3.6.dev0,<4",),
)
