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
from mlbackends.libraries.amd import library_finding, rocm_calls
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.model.records import Answer, Finding, Library, nonempty

DATABASES_LIMIT = 100


def find(host: Host) -> Finding:
    """Look for every copy of MIOpen and its databases."""
    finding = library_finding(host, "MIOpen", "libMIOpen")
    if not finding.libraries:
        return finding
    prefix = host.realpath(finding.libraries[0].path).rsplit("/", 2)[0]
    names = host.listdir(host.env("MIOPEN_SYSTEM_DB_PATH") or f"{prefix}/share/miopen/db")
    databases = [name for name in names if re.search(r"\.(kdb|db|db\.txt|fdb\.txt)$", name)]
    facts = nonempty({"databases": databases[:DATABASES_LIMIT], **finding.facts})
    return replace(finding, facts=facts)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    parts = (ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t())
    call = rocm_calls(opened, "miopenGetErrorString")
    call("miopenGetVersion", *map(ctypes.byref, parts))
    return Answer(replace(library, version=".".join(str(part.value) for part in parts)))


def use(opened: CDLL, library: Library) -> Answer:
    """Make a handle on the first GPU, and give it back."""
    call = rocm_calls(opened, "miopenGetErrorString")
    handle = call.create("miopenCreate")
    if not handle.value:
        raise call.failed("miopenCreate", 0)
    call("miopenDestroy", handle)
    return Answer(library)
