"""XNNPACK: neural network operators on processors, Google's; in torch for Arm and phones.

Finds:    libXNNPACK, and the copy inside torch where torch shows its functions.
Usable:   not tried: its operators have changed from release to release.
Caveats:  it has no version. torch's wheels for x86 are built without it.
Source:   XNNPACK's xnnpack.h, enum xnn_status.
"""

from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Finding, Library

GROUP = "library"
FACTS = ()

_UNSUPPORTED_HARDWARE = 5
_STATUS = {
    1: "uninitialized",
    2: "invalid parameter",
    3: "invalid state",
    4: "unsupported parameter",
    _UNSUPPORTED_HARDWARE: "unsupported hardware",
    6: "out of memory",
}


def find(host: Host) -> Finding:
    """Look for it by itself and inside torch."""
    libraries = libraries_named(host, "xnnpack", "libXNNPACK", "libxnnpack")
    libraries += inside(host, "xnnpack", "libtorch_cpu", ("xnn_initialize",))
    if not libraries:
        return Finding(reasons=(absent(host, "libXNNPACK, nor its functions inside torch,"),))
    return Finding(libraries=tuple(libraries))


def load(opened: CDLL, library: Library) -> Answer:
    """Initialise it, which looks at the processor and chooses kernels."""
    opened.xnn_initialize.argtypes = [ctypes.c_void_p]
    status = opened.xnn_initialize(None)
    if status:
        code = "unsupported-hardware" if status == _UNSUPPORTED_HARDWARE else "call-failed"
        told = _STATUS.get(status, "unknown")
        raise NotUsable(code, f"xnn_initialize returned {status} ({told})")
    return Answer(library)
