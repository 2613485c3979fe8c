"""MIOpen: AMD's deep-learning primitives.

Finds:    every libMIOpen, in wheels, conda, ROCM_PATH, /opt/rocm and the loader's cache, and the
          databases of tuned and compiled kernels that lie with it.
Loadable: miopenGetVersion answers.
Usable:   miopenCreate succeeds on the first GPU.
Caveats:  without a kernel database for the GPU, the first run of each shape compiles.
Source:   MIOpen API reference, miopenGetVersion, miopenCreate; MIOpen, "Environment variables".
"""

import re

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.amd import HINT, library_finding
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.model.records import Answer, Fact, Finding, Library

GROUP = "library"
FACTS = (
    Fact("databases", list[str], "The kernel and tuning databases beside the library."),
    Fact("environment", dict[str, str], "The variables that steer MIOpen and are set."),
)

VARIABLES = (
    "MIOPEN_FIND_MODE", "MIOPEN_FIND_ENFORCE", "MIOPEN_USER_DB_PATH", "MIOPEN_SYSTEM_DB_PATH",
    "MIOPEN_CUSTOM_CACHE_DIR", "MIOPEN_DISABLE_CACHE", "MIOPEN_ENABLE_LOGGING",
    "MIOPEN_ENABLE_LOGGING_CMD", "MIOPEN_LOG_LEVEL", "MIOPEN_CHECK_NUMERICS",
)  # fmt: skip
DATABASES_LIMIT = 100


def find(host: Host) -> Finding:
    """Look for every copy of MIOpen and its databases."""
    finding = library_finding(host, "MIOpen", "libMIOpen", VARIABLES)
    if not finding.libraries:
        return finding
    prefix = host.realpath(finding.libraries[0].path).rsplit("/", 2)[0]
    names = host.listdir(host.env("MIOPEN_SYSTEM_DB_PATH") or f"{prefix}/share/miopen/db")
    databases = [name for name in names if re.search(r"\.(kdb|db|db\.txt|fdb\.txt)$", name)]
    if not databases:
        return finding
    return replace(finding, facts={"databases": databases[:DATABASES_LIMIT], **finding.facts})


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    parts = (ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t())
    call = Calls(opened, "miopenGetErrorString", unnamed="no name")
    call("miopenGetVersion", *map(ctypes.byref, parts))
    return Answer(replace(library, version=".".join(str(part.value) for part in parts)))


def use(opened: CDLL, library: Library) -> Answer:
    """Make a handle on the first GPU, and give it back."""
    call = Calls(opened, "miopenGetErrorString", unnamed="no name", hint=HINT)
    handle = ctypes.c_void_p()
    call("miopenCreate", ctypes.byref(handle))
    if not handle.value:
        raise call.failed("miopenCreate", 0)
    call("miopenDestroy", handle)
    return Answer(library)
