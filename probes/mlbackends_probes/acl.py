"""Arm Compute Library: kernels for Arm processors, which oneDNN and torch use on AArch64.

Finds:    every libarm_compute, in wheels such as torch's too.
Usable:   not tried: a context is made, nothing is computed.
Caveats:  the release is in the build's own text; AclVersion counts the interface, which has
          been 0.1.0 for years.
Source:   Arm Compute Library: AclVersion.h, AclEntrypoints.h, AclTypes.h.
"""

import re

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Finding, Library, nonempty

LIBRARY = SharedLibrary("acl", ("libarm_compute",), homes=("ACL_ROOT_DIR", "ACL_ROOT"))
_MACHINES = ("aarch64", "arm64", "ARM64", "armv7l", "armv8l")


def find(host: Host) -> Finding:
    """Look for every copy, on Arm."""
    finding = LIBRARY.find(host)
    if not finding.libraries and host.machine and host.machine not in _MACHINES:
        message = f"the Arm Compute Library is for Arm; this is {host.machine}"
        return Finding(reasons=(Reason("not-this-platform", message),))
    return finding


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the build, and make a context on the processor."""

    class Version(ctypes.Structure):
        _fields_ = (
            *((part, ctypes.c_int) for part in ("major", "minor", "patch")),
            ("build", ctypes.c_char_p),
        )

    facts = {}
    if hasattr(opened, "AclVersionInfo"):
        opened.AclVersionInfo.restype = ctypes.POINTER(Version)
        if address := opened.AclVersionInfo():
            version = address.contents
            facts["interface_version"] = f"{version.major}.{version.minor}.{version.patch}"
            facts["build"] = build = (version.build or b"").decode(errors="replace").strip()
            if release := re.search(r"arm_compute_version=v?(\d+(?:\.\d+)*)", build):
                library = replace(library, version=release[1])
    answer = Answer(library, facts=nonempty(facts))
    if hasattr(opened, "AclCreateContext"):
        call, processor = Calls(opened, "acl", unnamed="unknown"), 0
        call.learned = answer
        call.create("AclCreateContext", processor, None)
    return answer
