"""CUDA runtime: libcudart, which programs that nvcc built call to use a GPU.

Finds:    every libcudart.so: wheels, conda, the toolkit, the loader's cache.
Usable:   a buffer that device 0 filled comes back right.
Caveats:  a program may hold the runtime inside (libcudart_static), which no search sees. The
          runtime opens libcuda.so.1 by name, so it takes the copy that the loader finds.
Source:   CUDA Runtime API reference, cudaRuntimeGetVersion, cudaGetDeviceCount.
"""

import sys

from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import NotUsable
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda import driver
from mlbackends.libraries.cuda.libraries import HOMES
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, Finding, Library, nonempty

_DLL = pattern(r"cudart64_(\d\d)\d?\.dll")
FOLDERS = ("/usr/local/cuda*/lib64", "/opt/cuda/lib64", "/usr/lib/cuda/lib64")


def find(host: Host) -> Finding:
    """Look for every copy, and whether the driver that is loaded is new enough for it."""
    libraries = libraries_named(host, "cuda_runtime", "libcudart", homes=HOMES, folders=FOLDERS)
    if not libraries:
        return Finding(reasons=(absent(host, "libcudart.so", HOMES, FOLDERS),))
    release = driver.driver_release(host)
    warnings = {}
    libraries = [replace(library, version=".".join(library.version.split(".")[:2])) for library in libraries]
    for library in libraries:
        # libcudart.so.13 needs a driver for CUDA 13.0 at least, libcudart.so.11.0 one for 11.0.
        number = library.soname.partition(".so.")[2]
        if library.soname.endswith(".dll") and (dll := _DLL.fullmatch(library.soname)):
            number = dll[1]
        cuda = f"{number}.0" if number.isdecimal() else number if "." in number else ""
        warning = driver.driver_warning(release, cuda, library.path) if release and cuda else None
        if warning is not None and not library.reasons:
            warnings[library.path] = warning
    return Finding(libraries=tuple(libraries), warnings=tuple(warnings.values()))


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the runtime's version, and for the driver's as the runtime sees it."""
    (version,) = _calls(opened).numbers("cudaRuntimeGetVersion", 1)
    library, number = replace(library, version=driver.decode(version)), ctypes.c_int(0)
    refused = opened.cudaDriverGetVersion(ctypes.byref(number))
    serves = "" if refused else driver.decode(number.value)
    return Answer(library, facts=nonempty({"driver_cuda_version": serves}))


def use(opened: CDLL, library: Library) -> Answer:
    """Fill a buffer on device 0 and read it back."""
    call, number = _calls(opened), ctypes.c_int(0)
    if opened.cudaDriverGetVersion(ctypes.byref(number)) == 0 and number.value == 0:
        file = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
        message = f"cudaDriverGetVersion returned 0: the runtime finds no driver ({file})"
        raise NotUsable("no-driver", message, "install NVIDIA's driver; in a container, use --gpus")
    (count,) = call.numbers("cudaGetDeviceCount", 1)
    if count < 1:
        raise driver.refused("cudaGetDeviceCount", driver.NO_DEVICE)
    call.learned = learned = Answer(library, facts={"device_count": count})
    call.fill_and_read("cuda", "device 0")
    return learned


def _calls(opened: CDLL) -> driver.CudaCalls:
    return driver.CudaCalls(opened, namer="cudaGetErrorName", unnamed="")
