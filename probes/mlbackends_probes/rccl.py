"""RCCL: AMD's collective communication between GPUs.

Finds:    every librccl, in wheels, conda, ROCM_PATH, /opt/rocm and the loader's cache.
Loadable: ncclGetVersion answers.
Caveats:  it is not used here: that would open network sockets and take GPUs for seconds.
Source:   RCCL API reference, ncclGetVersion; the NCCL_* variables hold for RCCL too.
"""

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.amd import library_finding
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Fact, Finding, Library

GROUP = "library"
FACTS = (Fact("environment", dict[str, str], "The variables that steer RCCL and are set."),)

_VARIABLES = (
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_NET_GDR_LEVEL",
    "RCCL_MSCCL_ENABLE",
    "RCCL_MSCCLPP_ENABLE",
)
_OLD_ENCODING_BELOW = 10_000  # 2708 is 2.7.8; since 2.9 it is 20900


def find(host: Host) -> Finding:
    """Look for every copy of RCCL."""
    return library_finding(host, "RCCL", "librccl", _VARIABLES)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, which needs no GPU."""
    version = ctypes.c_int()
    if status := opened.ncclGetVersion(ctypes.byref(version)):
        opened.ncclGetErrorString.restype = ctypes.c_char_p
        name = (opened.ncclGetErrorString(status) or b"no name").decode(errors="replace")
        raise NotUsable("call-failed", f"ncclGetVersion returned {status} ({name})")
    unit = 1000 if version.value < _OLD_ENCODING_BELOW else 10_000
    major, rest = divmod(version.value, unit)
    return Answer(replace(library, version=f"{major}.{rest // 100}.{rest % 100}"))
