"""NNPACK: fast convolutions on processors, built into torch.

Finds:    libnnpack, and the copy inside torch.
Usable:   nnp_initialize accepts this processor, and a convolution is right.
Caveats:  it has no version. On x86 it needs AVX2, FMA3 and a level-3 cache that it can see, which
          many virtual machines hide; there is no fallback inside it.
Source:   NNPACK's nnpack.h, enum nnp_status and nnp_convolution_inference.
"""

from mlbackends.base.reasons import NotUsable
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Library

LIBRARY = SharedLibrary(
    "nnpack",
    ("libnnpack",),
    symbols=("nnp_initialize",),
    missing="libnnpack, nor it inside torch,",
)
find = LIBRARY.find

_UNSUPPORTED_HARDWARE = 51


def use(opened: CDLL, library: Library) -> Answer:
    """Initialise it, and convolve a 3x3 image with a 2x2 kernel of ones, on the calling thread."""
    unnamed = "an invalid or unsupported parameter"
    call = Calls(opened, "nnpack", unnamed=unnamed)
    if (status := call.status("nnp_initialize")) == _UNSUPPORTED_HARDWARE:
        raise NotUsable(
            "unsupported-hardware",
            "nnp_initialize returned 51 (unsupported hardware): on x86 it needs AVX2, FMA3 and"
            " a level-3 cache that it can see",
            "in a virtual machine, pass the host's caches on (libvirt: <cache mode='passthrough'/>)",
        )
    if status:
        raise call.failed("nnp_initialize", status)
    if not hasattr(opened, "nnp_convolution_inference"):
        raise NotUsable("no-use-check", "it hides its convolutions, so nothing was computed")

    class Size(ctypes.Structure):
        _fields_ = (("width", ctypes.c_size_t), ("height", ctypes.c_size_t))

    class Padding(ctypes.Structure):
        _fields_ = tuple((side, ctypes.c_size_t) for side in ("top", "right", "bottom", "left"))

    image = (ctypes.c_float * 9)(*range(1, 10))
    kernel = (ctypes.c_float * 4)(1, 1, 1, 1)
    bias = (ctypes.c_float * 1)(10)
    output = (ctypes.c_float * 4)()
    matrix_product, compute, identity = 4, 1, 0
    call(
        "nnp_convolution_inference",
        *(matrix_product, compute, ctypes.c_size_t(1), ctypes.c_size_t(1)),
        *(Size(3, 3), Padding(0, 0, 0, 0), Size(2, 2), Size(1, 1)),
        *(image, kernel, bias, output, None, None, identity, None, None, None),
    )
    require_equal("nnp_convolution_inference", list(output), [22.0, 26.0, 34.0, 38.0])
    return Answer(library)
