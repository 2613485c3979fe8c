"""CUDA runtime: libcudart, which programs that nvcc built call to use a GPU.

Finds:    every libcudart.so: wheels, conda, the toolkit, the loader's cache.
Usable:   a buffer that device 0 filled comes back right.
Caveats:  a program may hold the runtime inside (libcudart_static), which no search sees. The
          runtime opens libcuda.so.1 by name, so it takes the copy that the loader finds.
Source:   CUDA Runtime API reference, cudaRuntimeGetVersion, cudaGetDeviceCount.
"""

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.driver import (
    CUDA_CODES,
    NO_DEVICE,
    decode,
    driver_release,
    driver_warning,
    refused,
)
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact(
        "driver_cuda_version", str, "The newest CUDA that the driver serves, as libcudart sees it."
    ),
    Fact("device_count", int, "How many devices the runtime shows."),
)
CODES = CUDA_CODES

HOMES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
FOLDERS = ("/usr/local/cuda*/lib64", "/opt/cuda/lib64", "/usr/lib/cuda/lib64")

_BYTES = 1 << 16
_FILL = 0xA5
_DEVICE_TO_HOST = 2


def find(host: Host) -> Finding:
    """Look for every copy, and whether the driver that is loaded is new enough for it."""
    libraries = libraries_named(host, "cuda_runtime", "libcudart", homes=HOMES, folders=FOLDERS)
    if not libraries:
        return Finding(reasons=(absent(host, "libcudart.so", HOMES, FOLDERS),))
    release = driver_release(host)
    warnings = {}
    for library in libraries:
        # libcudart.so.13 needs a driver for CUDA 13.0 at least, libcudart.so.11.0 one for 11.0.
        number = library.soname.partition(".so.")[2]
        cuda = f"{number}.0" if number.isdecimal() else number if "." in number else ""
        warning = driver_warning(release, cuda, library.path) if release and cuda else None
        if warning is not None and not library.reasons:
            warnings[library.path] = warning
    return Finding(libraries=tuple(libraries), warnings=tuple(warnings.values()))


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the runtime's version, and for the driver's as the runtime sees it."""
    version = ctypes.c_int(0)
    _call(opened, "cudaRuntimeGetVersion", ctypes.byref(version))
    library = replace(library, version=decode(version.value))
    driver = ctypes.c_int(0)
    facts: dict[str, FactValue] = {}
    if opened.cudaDriverGetVersion(ctypes.byref(driver)) == 0 and decode(driver.value):
        facts["driver_cuda_version"] = decode(driver.value)
    return Answer(library, facts=facts)


def use(opened: CDLL, library: Library) -> Answer:
    """Fill a buffer on device 0 and read it back."""
    driver, count = ctypes.c_int(0), ctypes.c_int(0)
    if opened.cudaDriverGetVersion(ctypes.byref(driver)) == 0 and driver.value == 0:
        message = "cudaDriverGetVersion says 0: the runtime finds no driver (libcuda.so.1)"
        raise NotUsable("no-driver", message, "install NVIDIA's driver; in a container, use --gpus")
    _call(opened, "cudaGetDeviceCount", ctypes.byref(count))
    if count.value < 1:
        raise refused("cudaGetDeviceCount", NO_DEVICE)
    learned = Answer(library, facts={"device_count": count.value})
    pointer, size = ctypes.c_void_p(), ctypes.c_size_t(_BYTES)
    result = (ctypes.c_ubyte * _BYTES)()
    try:
        _call(opened, "cudaSetDevice", ctypes.c_int(0))
        _call(opened, "cudaMalloc", ctypes.byref(pointer), size)
        _call(opened, "cudaMemset", pointer, ctypes.c_int(_FILL), size)
        direction = ctypes.c_int(_DEVICE_TO_HOST)
        _call(opened, "cudaMemcpy", ctypes.byref(result), pointer, size, direction)
        _call(opened, "cudaFree", pointer)
    except NotUsable as stop:
        reason = stop.reason
        raise NotUsable(reason.code, reason.message, reason.hint, learned) from None
    if wrong := _BYTES - bytes(result).count(_FILL):
        message = f"of {_BYTES} bytes that device 0 filled, {wrong} came back wrong"
        raise NotUsable("wrong-result", message, learned=learned)
    return learned


def _call(opened: CDLL, function: str, *arguments: object) -> None:
    """Call a function; raise NotUsable, with code and name, where it returns an error."""
    if code := getattr(opened, function)(*arguments):
        opened.cudaGetErrorName.restype = ctypes.c_char_p
        name = opened.cudaGetErrorName(ctypes.c_int(code)) or b""
        raise refused(function, code, name.decode(errors="replace"))
