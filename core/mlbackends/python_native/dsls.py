"""The DSLs for kernels that torch names, and whether they can be used on this machine.

That is read from the files that are installed: importing Triton takes seconds, and touches the driver.
Source: torch 2.15, torch/_native, for the names and versions.
"""

from __future__ import annotations

import os
from functools import cache

from mlbackends.switches import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from packaging.version import Version

    from mlbackends.host.host import Host
    from mlbackends.host.python.packages import Distribution

#: The hidden DSL of overrides that are written in none. It can be filtered, and is never listed.
NATIVE = "native"
#: Of each DSL: the distributions that may contain it, in order of preference; the modules that must be
#: there to be imported; clauses of versions, of which one must hold. Kernels run on NVIDIA's devices, those
#: of FlyDSL on AMD's. torch has helion since 2.14 and flydsl since 2.15.
DSLS = {
    "cutedsl": (
        ("nvidia-cutlass-dsl",),
        ("cutlass", "tvm_ffi"),
        ("==4.6.2", "==4.7.1", "==4.8.0"),
    ),
    "flydsl": (("flydsl",), ("flydsl",), (">=0.3,<0.4",)),
    "helion": (("helion",), ("helion", "triton"), (">=1.2.0",)),
    "triton": (
        ("triton", "pytorch-triton", "triton-nightly", "triton-windows"),
        ("triton",),
        (">=3.6.dev0,<4",),
    ),
}


@cache
def is_available(dsl_name: str) -> bool:
    """Tell whether a DSL is installed, in a supported version, beside a CUDA driver library."""
    return dsl_name in DSLS and not unavailable_reason(dsl_name)


def unavailable_reason(dsl_name: str, host: Host | None = None) -> str:
    """Return what a DSL's kernels lack on this machine, "" where they can run."""
    from mlbackends.host.host import Host
    from mlbackends.host.python.packages import module_location
    from mlbackends.host.python.requirements import satisfies

    host = host or Host()
    distributions, modules, versions = DSLS[dsl_name]
    dist = _installed(dsl_name, host)
    if dist is None:
        return f"{distributions[0]} is not installed"
    for module in modules:
        if not module_location(host, module):
            return f"{dist.name} is installed, and there is no module {module} to import"
    if not store.read("python_native.skip_version_check") and not any(
        satisfies(dist.version, clauses) for clauses in versions
    ):
        return f"{dist.name} is {dist.version}; needed is {' or '.join(versions)}"
    if dsl_name == "helion" and helion_backend() != "triton":
        return f"HELION_BACKEND is {helion_backend()}; torch takes triton alone"
    if dsl_name == "flydsl":
        from mlbackends.libraries import amd
        from mlbackends.libraries.search import libraries_named

        places = {"homes": amd.HOMES, "folders": amd.FOLDERS, "wheels": amd.wheels(host)}
        hip = libraries_named(host, "HIP", "libamdhip64", **places)
        return "" if hip else "there is no HIP runtime (libamdhip64.so)"
    from mlbackends.libraries.cuda.driver import driver_libraries

    if not any(library.wins for library in driver_libraries(host, "cuda_driver", "libcuda")):
        return "there is no CUDA driver library (libcuda.so.1)"
    return ""


def helion_backend() -> str:
    """Return what Helion compiles through, as HELION_BACKEND says."""
    return os.environ.get("HELION_BACKEND", "triton")


def version(dsl_name: str) -> Version | None:
    """Return the version of a DSL that is installed, None where it is not or its version is invalid."""
    from mlbackends.host.host import Host

    dist = _installed(dsl_name, Host())
    if dist is None:
        return None
    from packaging.version import InvalidVersion, Version

    try:
        return Version(dist.version)
    except InvalidVersion:
        return None


def _installed(dsl_name: str, host: Host) -> Distribution | None:
    from mlbackends.host.python.packages import distribution

    found = (distribution(host, name) for name in DSLS[dsl_name][0])
    return next((dist for dist in found if dist), None)
