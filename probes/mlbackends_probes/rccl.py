"""RCCL: AMD's collective communication between GPUs.

Finds:    every librccl, in wheels, conda, ROCM_PATH, /opt/rocm and the loader's cache.
Loadable: ncclGetVersion answers.
Caveats:  it is not used here: that would open network sockets and take GPUs for seconds.
Source:   RCCL API reference, ncclGetVersion; the NCCL_* variables hold for RCCL too.
"""

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.amd import library_finding, rocm_calls
from mlbackends.libraries.c_calls import CDLL, decimal_version
from mlbackends.model.records import Answer, Finding, Library


def find(host: Host) -> Finding:
    """Look for every copy of RCCL."""
    return library_finding(host, "RCCL", "librccl")


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, which needs no GPU: 2708 is 2.7.8; since 2.9 it is 20900."""
    (number,) = rocm_calls(opened, "ncclGetErrorString").numbers("ncclGetVersion", 1)
    version = decimal_version(number, 1000 if number < 10_000 else 10_000)
    return Answer(replace(library, version=version))
