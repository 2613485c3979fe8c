"""QNNPACK: arithmetic with 8-bit integers on processors, built into torch.

Finds:    libqnnpack and libpytorch_qnnpack, and the copy inside torch.
Usable:   it initialises, and clamping four numbers is right.
Caveats:  it has no version. PyTorch's own fork has other function names than the original.
Source:   pytorch_qnnpack.h and qnnpack.h: the status and the clamp operator.
"""

from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Finding, Library

GROUP = "library"
FACTS = ()

_PREFIXES = ("pytorch_qnnp", "qnnp")
_UNSUPPORTED_HARDWARE = 4
_STATUS = {
    1: "uninitialized",
    2: "invalid parameter",
    3: "unsupported parameter",
    _UNSUPPORTED_HARDWARE: "unsupported hardware",
    5: "out of memory",
}


def find(host: Host) -> Finding:
    """Look for it by itself and inside torch."""
    libraries = libraries_named(host, "qnnpack", "libqnnpack", "libpytorch_qnnpack")
    libraries += inside(host, "qnnpack", "libtorch_cpu", ("pytorch_qnnp_initialize",))
    if not libraries:
        return Finding(reasons=(absent(host, "libqnnpack, nor it inside torch,"),))
    return Finding(libraries=tuple(libraries))


def _prefix(opened: CDLL, library: Library) -> str:
    for prefix in _PREFIXES:
        if hasattr(opened, f"{prefix}_initialize"):
            return prefix
    message = f"{library.path} has no function {_PREFIXES[0]}_initialize"
    raise NotUsable("missing-symbol", message)


def use(opened: CDLL, library: Library) -> Answer:
    """Clamp numbers to a range, on the calling thread."""
    prefix = _prefix(opened, library)

    def call(name: str, *arguments: object) -> None:
        status = getattr(opened, f"{prefix}_{name}")(*arguments)
        if status:
            code = "unsupported-hardware" if status == _UNSUPPORTED_HARDWARE else "call-failed"
            told = _STATUS.get(status, "unknown")
            raise NotUsable(code, f"{prefix}_{name} returned {status} ({told})")

    numbers = (ctypes.c_uint8 * 4)(0, 10, 100, 255)
    clamped = (ctypes.c_uint8 * 4)()
    operator = ctypes.c_void_p()
    one, all_of = ctypes.c_size_t(1), ctypes.c_size_t(len(numbers))
    call("initialize")
    limits = (ctypes.c_uint8(5), ctypes.c_uint8(200))
    call("create_clamp_nc_u8", all_of, *limits, ctypes.c_uint32(0), ctypes.byref(operator))
    call("setup_clamp_nc_u8", operator, one, numbers, all_of, clamped, all_of)
    call("run_operator", operator, None)
    require_equal(
        f"{prefix}_run_operator", [float(one) for one in clamped], [5.0, 10.0, 100.0, 200.0]
    )
    return Answer(library)
