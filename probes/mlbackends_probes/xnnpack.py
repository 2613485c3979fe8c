"""XNNPACK: neural network operators on processors, Google's; in torch for Arm and phones.

Finds:    libXNNPACK, and the copy inside torch where torch shows its functions.
Usable:   not tried: its operators have changed from release to release.
Caveats:  it has no version. torch's wheels for x86 are built without it.
Source:   XNNPACK's xnnpack.h, enum xnn_status.
"""

from mlbackends.libraries.c_calls import CDLL, Calls
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Library

LIBRARY = SharedLibrary(
    "xnnpack",
    ("libXNNPACK", "libxnnpack"),
    symbols=("xnn_initialize",),
    missing="libXNNPACK, nor its functions inside torch,",
)
find = LIBRARY.find

_UNSUPPORTED_HARDWARE = 5


def load(opened: CDLL, library: Library) -> Answer:
    """Initialise it, which looks at the processor and chooses kernels."""
    call = Calls(opened, "xnnpack", unnamed="unknown")
    if status := call.status("xnn_initialize", None):
        code = "unsupported-hardware" if status == _UNSUPPORTED_HARDWARE else "call-failed"
        raise call.failed("xnn_initialize", status, code)
    return Answer(library)
