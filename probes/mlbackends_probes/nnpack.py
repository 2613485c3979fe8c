"""NNPACK: fast convolutions on processors, built into torch.

Finds:    libnnpack, and the copy inside torch.
Usable:   nnp_initialize accepts this processor, and a convolution is right.
Caveats:  it has no version. On x86 it needs AVX2, FMA3 and a level-3 cache that it can see, which
          many virtual machines hide; there is no fallback inside it.
Source:   NNPACK's nnpack.h, enum nnp_status and nnp_convolution_inference.
"""

from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Finding, Library

GROUP = "library"
FACTS = ()

_UNSUPPORTED_HARDWARE = 51
_STATUS = {
    _UNSUPPORTED_HARDWARE: "unsupported hardware",
    50: "uninitialized",
    52: "out of memory",
    53: "insufficient buffer",
    54: "misaligned buffer",
}


def find(host: Host) -> Finding:
    """Look for it by itself and inside torch."""
    libraries = libraries_named(host, "nnpack", "libnnpack")
    libraries += inside(host, "nnpack", "libtorch_cpu", ("nnp_initialize",))
    if not libraries:
        return Finding(reasons=(absent(host, "libnnpack, nor it inside torch,"),))
    return Finding(libraries=tuple(libraries))


def use(opened: CDLL, library: Library) -> Answer:
    """Initialise it, and convolve."""
    status = opened.nnp_initialize()
    if status == _UNSUPPORTED_HARDWARE:
        message = (
            "nnp_initialize returned 51 (unsupported hardware): on x86 it needs AVX2, FMA3 and"
            " a level-3 cache that it can see"
        )
        hint = (
            "in a virtual machine, pass the host's caches on (libvirt: <cache mode='passthrough'/>)"
        )
        raise NotUsable("unsupported-hardware", message, hint)
    _require(status, "nnp_initialize")
    if not hasattr(opened, "nnp_convolution_inference"):
        raise NotUsable("no-use-check", "it hides its convolutions, so nothing was computed")
    _convolve(opened)
    return Answer(library)


def _require(status: int, function: str) -> None:
    if status:
        name = _STATUS.get(status, "an invalid or unsupported parameter")
        raise NotUsable("call-failed", f"{function} returned {status} ({name})")


def _convolve(opened: CDLL) -> None:
    """Convolve a 3x3 image with a 2x2 kernel of ones, on the calling thread."""

    class Size(ctypes.Structure):
        _fields_ = (("width", ctypes.c_size_t), ("height", ctypes.c_size_t))

    class Padding(ctypes.Structure):
        _fields_ = tuple((side, ctypes.c_size_t) for side in ("top", "right", "bottom", "left"))

    image = (ctypes.c_float * 9)(*range(1, 10))
    kernel = (ctypes.c_float * 4)(1, 1, 1, 1)
    bias = (ctypes.c_float * 1)(10)
    output = (ctypes.c_float * 4)()
    matrix_product, compute, identity = 4, 1, 0
    status = opened.nnp_convolution_inference(
        *(matrix_product, compute, ctypes.c_size_t(1), ctypes.c_size_t(1)),
        *(Size(3, 3), Padding(0, 0, 0, 0), Size(2, 2), Size(1, 1)),
        *(image, kernel, bias, output, None, None, identity, None, None, None),
    )
    _require(status, "nnp_convolution_inference")
    require_equal("nnp_convolution_inference", list(output), [22.0, 26.0, 34.0, 38.0])
