"""The DSLs for kernels, CuTe DSL and Triton, and whether they can be used on this machine.

That is read from the files that are installed: importing Triton takes seconds, and touches the driver.
Source: torch 2.13, torch/_native, for the versions.
"""

from __future__ import annotations

from functools import cache

from mlbackends.python_native import filters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from packaging.version import Version

    from mlbackends.host.host import Host
    from mlbackends.host.python.packages import Distribution

NATIVE = "native"
"""The hidden DSL of overrides that are written in none. It can be filtered, and is never listed."""


class PackagedDsl:
    """A DSL that is a Python package, and whose kernels run on NVIDIA's devices.

    distributions: those that may contain it, in order of preference. modules: what must be there to
    be imported, its own first. versions: clauses of which one must hold, such as ">=3.6,<4".
    """

    def __init__(
        self,
        name: str,
        distributions: tuple[str, ...],
        modules: tuple[str, ...],
        versions: tuple[str, ...],
    ) -> None:
        self.name = name
        self.distributions = distributions
        self.modules = modules
        self.versions = versions

    def runtime_version(self) -> Version | None:
        """Return the version that is installed, None where it is not or its version is invalid."""
        from mlbackends.host.host import Host

        dist = self.installed(Host())
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
        dist = self.installed(host)
        if dist is None:
            return f"{self.distributions[0]} is not installed"
        for module in self.modules:
            if not module_location(host, module):
                return f"{dist.name} is installed, and there is no module {module} to import"
        if not filters.is_one(filters.SKIP_VERSION_CHECK) and not any(
            satisfies(dist.version, clauses) for clauses in self.versions
        ):
            return f"{dist.name} is {dist.version}; needed is {' or '.join(self.versions)}"
        from mlbackends.libraries.cuda.driver import driver_libraries

        if not any(library.wins for library in driver_libraries(host, "cuda_driver", "libcuda")):
            return "there is no CUDA driver library (libcuda.so.1)"
        return ""

    def installed(self, host: Host) -> Distribution | None:
        """Return the distribution that contains it, None where there is none."""
        from mlbackends.host.python.packages import distribution

        found = (distribution(host, name) for name in self.distributions)
        return next((dist for dist in found if dist), None)


CUTEDSL = PackagedDsl(
    "cutedsl", ("nvidia-cutlass-dsl",), ("cutlass", "tvm_ffi"), ("==4.4.1", "==4.4.2", "==4.5.2")
)
TRITON = PackagedDsl(
    "triton",
    ("triton", "pytorch-triton", "triton-nightly", "triton-windows"),
    ("triton",),
    (">=3.6.dev0,<4",),
)
DSLS = {"cutedsl": CUTEDSL, "triton": TRITON}


@cache
def is_available(dsl_name: str) -> bool:
    """Tell whether a DSL is installed, in a supported version, beside a CUDA driver library."""
    return dsl_name in DSLS and not DSLS[dsl_name].unavailable_reason()


@cache
def version(dsl_name: str) -> Version | None:
    """Return the version of a DSL that is installed, None without one."""
    return DSLS[dsl_name].runtime_version()
