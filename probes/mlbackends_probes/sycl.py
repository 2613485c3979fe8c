"""SYCL: the runtime of Intel's DPC++ compiler, on which PyTorch's XPU stands.

Finds:    every libsycl, in wheels, conda, ONEAPI_ROOT and the loader's cache, and the adapters for
          devices that lie beside it.
Caveats:  it has a C++ interface only, so nothing is asked of it; its devices are those of `xpu`.
Source:   oneAPI DPC++ documentation, "Environment variables".
"""

import re

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import steering
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact("adapters", list[str], "The adapters beside it: level_zero, opencl, cuda, hip."),
    Fact("environment", dict[str, str], "The variables that steer SYCL and are set."),
)

_HOMES = ("ONEAPI_ROOT", "CMPLR_ROOT")
_FOLDERS = ("/opt/intel/oneapi/compiler/*/lib",)
_VARIABLES = (
    "ONEAPI_DEVICE_SELECTOR",
    "SYCL_CACHE_PERSISTENT",
    "SYCL_CACHE_DIR",
    "SYCL_UR_TRACE",
    "SYCL_PI_TRACE",
    "SYCL_PI_LEVEL_ZERO_USE_IMMEDIATE_COMMANDLISTS",
    "SYCL_ENABLE_DEFAULT_CONTEXTS",
)
_ADAPTER = pattern(r"lib(?:ur_adapter|pi)_(\w+)\.so")


def find(host: Host) -> Finding:
    """Look for every copy of the runtime and the adapters beside the first."""
    libraries = libraries_named(host, "SYCL", "libsycl", homes=_HOMES, folders=_FOLDERS)
    if not libraries:
        return Finding(reasons=(absent(host, "libsycl.so", _HOMES),))
    facts: dict[str, FactValue] = {}
    beside = host.realpath(libraries[0].path).rsplit("/", 1)[0]
    names = (_ADAPTER.match(name) for name in host.listdir(beside))
    if adapters := sorted({match[1] for match in names if match}):
        facts["adapters"] = list(adapters)
    facts |= steering(host, _VARIABLES)
    return Finding(tuple(_with_version(host, library) for library in libraries), facts=facts)


def _with_version(host: Host, library: Library) -> Library:
    """Take the version from the file's full name: libsycl.so.8.0.0."""
    match = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", host.realpath(library.path))
    return replace(library, version=match[1]) if match else library
