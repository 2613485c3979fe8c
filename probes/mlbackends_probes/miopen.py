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
from mlbackends.libraries.amd import library_finding
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Fact, Finding, Library

GROUP = "library"
FACTS = (
    Fact("databases", list[str], "The kernel and tuning databases beside the library."),
    Fact("environment", dict[str, str], "The variables that steer MIOpen and are set."),
)

_VARIABLES = (
    "MIOPEN_FIND_MODE",
    "MIOPEN_FIND_ENFORCE",
    "MIOPEN_USER_DB_PATH",
    "MIOPEN_SYSTEM_DB_PATH",
    "MIOPEN_CUSTOM_CACHE_DIR",
    "MIOPEN_DISABLE_CACHE",
    "MIOPEN_ENABLE_LOGGING",
    "MIOPEN_ENABLE_LOGGING_CMD",
    "MIOPEN_LOG_LEVEL",
    "MIOPEN_CHECK_NUMERICS",
)
_DATABASES_LIMIT = 100


def find(host: Host) -> Finding:
    """Look for every copy of MIOpen and its databases."""
    finding = library_finding(host, "MIOpen", "libMIOpen", _VARIABLES)
    databases = _databases(host, finding.libraries[0]) if finding.libraries else []
    return (
        replace(finding, facts={"databases": databases, **finding.facts}) if databases else finding
    )


def _databases(host: Host, library: Library) -> list[str]:
    prefix = host.realpath(library.path).rsplit("/", 2)[0]
    folder = host.env("MIOPEN_SYSTEM_DB_PATH") or f"{prefix}/share/miopen/db"
    names = host.listdir(folder)
    found = [name for name in names if re.search(r"\.(kdb|db|db\.txt|fdb\.txt)$", name)]
    return found[:_DATABASES_LIMIT]


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    parts = (ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t())
    status = opened.miopenGetVersion(*(ctypes.byref(part) for part in parts))
    if status:
        raise _failed(opened, "miopenGetVersion", status)
    return Answer(replace(library, version=".".join(str(part.value) for part in parts)))


def use(opened: CDLL, library: Library) -> Answer:
    """Make a handle on the first GPU, and give it back."""
    handle = ctypes.c_void_p()
    status = opened.miopenCreate(ctypes.byref(handle))
    if status or not handle.value:
        raise _failed(opened, "miopenCreate", status)
    opened.miopenDestroy.argtypes = [ctypes.c_void_p]
    if status := opened.miopenDestroy(handle):
        raise _failed(opened, "miopenDestroy", status)
    return Answer(library)


def _failed(opened: CDLL, function: str, status: int) -> NotUsable:
    opened.miopenGetErrorString.restype = ctypes.c_char_p
    name = (opened.miopenGetErrorString(status) or b"no name").decode(errors="replace")
    hint = "" if function == "miopenGetVersion" else "see `backends info rocm` for the GPU"
    return NotUsable("call-failed", f"{function} returned {status} ({name})", hint)
