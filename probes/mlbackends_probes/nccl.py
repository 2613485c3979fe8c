"""NCCL: NVIDIA's communication between GPUs.

Finds:    every libnccl, in wheels, conda, NCCL_HOME, CUDA_HOME, customary folders and the loader's
          cache, and the copies that are built into libtorch_cuda.
          The settings in nccl.conf: the file of NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf.
Usable:   a communicator of device 0 alone sums numbers correctly.
Caveats:  one device does not test links and networks between several.
Source:   NCCL documentation, ncclGetVersion, ncclCommInitAll, ncclAllReduce, environment variables;
          src/misc/param.cc for nccl.conf.
"""

from msgspec.structs import replace

from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes, decimal_version
from mlbackends.libraries.cuda.device import expect, first_device
from mlbackends.libraries.cuda.libraries import CudaLibrary, versioned
from mlbackends.libraries.search import inside
from mlbackends.model.records import Answer, Finding, Library

LIBRARY = CudaLibrary(
    "nccl",
    ("libnccl",),
    headers=("nccl.h",),
    macros=("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"),
    homes=("NCCL_HOME", "NCCL_ROOT"),
    namer="ncclGetErrorString",
)

FLOAT_32 = 7
SUM = 0


def find(host: Host) -> Finding:
    """Look for every libnccl, and for those that are built into torch."""
    finding = LIBRARY.find(host)
    built_in = inside(host, "nccl", "libtorch_cuda", ("ncclGetVersion",))
    reasons = () if built_in else finding.reasons
    facts = finding.facts
    if (finding.libraries or built_in) and (rows := configured(host)):
        facts = {**facts, "configuration": rows}
    return replace(finding, libraries=(*finding.libraries, *built_in), facts=facts, reasons=reasons)


def configured(host: Host) -> list[dict[str, str]]:
    """Return what nccl.conf sets; the first file that sets a variable holds, after the environment."""
    own = host.env("NCCL_CONF_FILE") or f"{host.env('HOME')}/.nccl.conf"
    rows: dict[str, dict[str, str]] = {}
    for path in (own, "/etc/nccl.conf"):
        for line in host.read(path, 65536).splitlines():
            name, equals, value = line.partition("=")
            if equals and name in table("host/variables")["nccl"]:
                rows.setdefault(name, {"name": name, "value": value, "file": path})
    return list(rows.values())


def load(opened: CDLL, library: Library) -> Answer:
    """Ask the version."""
    (number,) = LIBRARY.calls(opened).numbers("ncclGetVersion", 1)
    return versioned(library, decoded(number))


def use(opened: CDLL, library: Library) -> Answer:
    """Sum numbers over the one device."""
    call, device = LIBRARY.calls(opened), first_device()
    numbers, result, stream = device.floats(1, 2, 3), device.floats(0, 0, 0), None
    communicator = call.create("ncclCommInitAll", 1, (ctypes.c_int * 1)(0))
    kind = (ctypes.c_size_t(3), FLOAT_32, SUM)
    call("ncclAllReduce", numbers, result, *kind, communicator, stream)
    expect("a sum over one device", device.read_floats(result, 3), (1, 2, 3))
    return Answer(library)


def decoded(number: int) -> str:
    """Return a version as text: 23007 is 2.30.7, and 2708 is 2.7.8, because 2.9 got more digits."""
    return decimal_version(number, 10_000 if number >= 10_000 else 1000)
