"""Arm Compute Library: kernels for Arm processors, which oneDNN and torch use on AArch64.

Finds:    every libarm_compute, in wheels such as torch's too.
Usable:   not tried: a context is made, nothing is computed.
Caveats:  the release is told by the build's own text; AclVersion counts the interface, which has
          been 0.1.0 for years.
Source:   Arm Compute Library: AclVersion.h, AclEntrypoints.h, AclTypes.h.
"""

import re

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact("interface_version", str, "The version of its C interface."),
    Fact("build", str, "The options that it was built with, in its own words."),
)

HOMES = ("ACL_ROOT_DIR", "ACL_ROOT")
_MACHINES = ("aarch64", "arm64", "ARM64", "armv7l", "armv8l")
_STATUS = {
    1: "runtime error",
    2: "out of memory",
    3: "unimplemented",
    4: "unsupported target",
    5: "invalid target",
    6: "invalid argument",
    7: "unsupported configuration",
    8: "invalid object state",
}


def find(host: Host) -> Finding:
    """Look for every copy, on Arm."""
    libraries = libraries_named(host, "acl", "libarm_compute", homes=HOMES)
    if not libraries and host.machine and host.machine not in _MACHINES:
        message = f"the Arm Compute Library is for Arm; this is {host.machine}"
        return Finding(reasons=(Reason("not-this-platform", message),))
    if not libraries:
        return Finding(reasons=(absent(host, "libarm_compute", HOMES),))
    return Finding(libraries=tuple(libraries))


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the build, and make a context on the processor."""

    class Version(ctypes.Structure):
        _fields_ = (
            *((part, ctypes.c_int) for part in ("major", "minor", "patch")),
            ("build", ctypes.c_char_p),
        )

    facts: dict[str, FactValue] = {}
    if hasattr(opened, "AclVersionInfo"):
        opened.AclVersionInfo.restype = ctypes.POINTER(Version)
        if address := opened.AclVersionInfo():
            told = address.contents
            facts["interface_version"] = f"{told.major}.{told.minor}.{told.patch}"
            build = (told.build or b"").decode(errors="replace").strip()
            if build:
                facts["build"] = build
            if release := re.search(r"arm_compute_version=v?(\d+(?:\.\d+)*)", build):
                library = replace(library, version=release[1])
    if hasattr(opened, "AclCreateContext"):
        context = ctypes.c_void_p()
        processor = 0
        status = opened.AclCreateContext(ctypes.byref(context), processor, None)
        if status:
            message = f"AclCreateContext returned {status} ({_STATUS.get(status, 'unknown')})"
            raise NotUsable("call-failed", message, learned=Answer(library, facts=facts))
    return Answer(library, facts=facts)
