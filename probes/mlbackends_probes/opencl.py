"""OpenCL: the loader, its drivers (ICDs), and the devices behind them.

Finds:    every libOpenCL, the ICD files in /etc/OpenCL/vendors or where OCL_ICD_VENDORS points.
Loadable: clGetPlatformIDs answers, even if it knows no platform.
Usable:   a device fills a buffer, and what is read back is right.
Caveats:  a CPU driver such as PoCL makes OpenCL usable without a GPU; `device_type` tells.
Source:   OpenCL 3.0 API specification; cl_khr_icd, "Installing and using ICDs".
"""

import struct
import sys

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import steering
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Device, Fact, FactValue, Finding, Library, Presence

GROUP = "accelerator"
FACTS = (
    Fact("drivers", list[dict[str, str]], "ICD files and the library that each names."),
    Fact("platforms", list[dict[str, str]], "Platforms as the loader lists them."),
    Fact("environment", dict[str, str], "The variables that steer OpenCL and are set."),
)

_VARIABLES = (
    "OCL_ICD_VENDORS",
    "OCL_ICD_FILENAMES",
    "OPENCL_VENDOR_PATH",
    "OPENCL_LAYERS",
    "POCL_DEVICES",
    "POCL_MAX_PTHREAD_COUNT",
    "GPU_DEVICE_ORDINAL",
)
_FRAMEWORK = "/System/Library/Frameworks/OpenCL.framework/OpenCL"
_FILES_LIMIT = 64

_PLATFORM_VERSION, _PLATFORM_NAME, _PLATFORM_VENDOR = 0x0901, 0x0902, 0x0903
_TYPE, _UNITS, _CLOCK_MEGAHERTZ, _MEMORY, _AVAILABLE = 0x1000, 0x1002, 0x100C, 0x101F, 0x1027
_NAME, _DRIVER, _VERSION, _FLOAT64, _PCI = 0x102B, 0x102D, 0x102F, 0x1032, 0x410F
_ALL_TYPES = 0xFFFFFFFF
_TYPES = {2: "cpu", 4: "gpu", 8: "accelerator", 16: "custom"}
_NO_PLATFORM, _NO_DEVICE = -1001, -1
_READ_WRITE, _BLOCKING = 1, 1
_LIMIT = 64
_CHECK_BYTES = 4096
_PATTERN = b"\x12\x34\x56\x78"
_ERRORS = {
    -1: "CL_DEVICE_NOT_FOUND",
    -2: "CL_DEVICE_NOT_AVAILABLE",
    -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "CL_OUT_OF_RESOURCES",
    -6: "CL_OUT_OF_HOST_MEMORY",
    -30: "CL_INVALID_VALUE",
    -32: "CL_INVALID_PLATFORM",
    -33: "CL_INVALID_DEVICE",
    -34: "CL_INVALID_CONTEXT",
    -1001: "CL_PLATFORM_NOT_FOUND_KHR",
}


def find(host: Host) -> Finding:
    """Look for the loader's copies and the drivers that are registered."""
    libraries = libraries_named(host, "OpenCL", "libOpenCL", "OpenCL", homes=("OCL_ROOT",))
    if host.platform == "darwin" and not libraries:
        # The file is in the system's shared cache, not on disk.
        libraries = [Library("OpenCL", _FRAMEWORK, found_by="system-framework", wins=True)]
    drivers = _drivers(host)
    if not libraries and not drivers:
        return Finding(reasons=(absent(host, "libOpenCL.so"),))
    facts: dict[str, FactValue] = {"drivers": [{**row} for row in drivers]} if drivers else {}
    facts |= steering(host, _VARIABLES)
    warnings = tuple(
        Reason(
            "dangling-link",
            f"{row['file']} names {row['library']}, which is not there",
            "reinstall the driver that brought the file, or remove the file",
        )
        for row in drivers
        if row["library"].startswith("/") and not host.exists(row["library"])
    )
    reasons: tuple[Reason, ...] = ()
    if not libraries:
        message = "OpenCL drivers are registered, but there is no loader, libOpenCL.so"
        reasons = (Reason("not-found", message, "install an ICD loader, such as ocl-icd"),)
    elif not drivers and host.platform == "linux":
        message = f"the loader is here, and no driver is registered in {', '.join(_places(host))}"
        reasons = (Reason("no-driver", message),)
    presence = None if libraries else Presence.FOUND
    return Finding(tuple(libraries), (), facts, "", presence, reasons, warnings)


def _places(host: Host) -> list[str]:
    """Return the folders with ICD files; a variable replaces the usual one."""
    named = host.env("OCL_ICD_VENDORS") or host.env("OPENCL_VENDOR_PATH")
    return [named.rstrip("/")] if named.startswith("/") else ["/etc/OpenCL/vendors"]


def _drivers(host: Host) -> list[dict[str, str]]:
    rows = []
    for place in _places(host):
        if place.endswith(".icd"):
            files = [place]
        else:
            files = [f"{place}/{name}" for name in host.listdir(place) if name.endswith(".icd")]
        for file in files[:_FILES_LIMIT]:
            named = host.read(file, 4096).split("\n")[0].strip()
            if named and named.isprintable():
                rows.append({"file": file, "library": named})
    named_directly = host.env("OCL_ICD_FILENAMES").split(":")[:_FILES_LIMIT]
    rows += [{"file": "OCL_ICD_FILENAMES", "library": name} for name in named_directly if name]
    return rows


# ---- in the child ------------------------------------------------------------------------------


def load(opened: CDLL, library: Library) -> Answer:
    """List the platforms."""
    rows: list[FactValue] = [
        {
            "name": _text(opened.clGetPlatformInfo, platform, _PLATFORM_NAME),
            "vendor": _text(opened.clGetPlatformInfo, platform, _PLATFORM_VENDOR),
            "version": _text(opened.clGetPlatformInfo, platform, _PLATFORM_VERSION),
        }
        for platform in _platforms(opened)
    ]
    return Answer(library, facts={"platforms": rows} if rows else {})


def use(opened: CDLL, library: Library) -> Answer:
    """List the devices, and fill a buffer on each that says it is available."""
    platforms = _platforms(opened)
    if not platforms:
        raise NotUsable("no-driver", "the OpenCL loader opens, and knows no platform")
    devices: list[Device] = []
    for platform in platforms:
        name = _text(opened.clGetPlatformInfo, platform, _PLATFORM_NAME)
        for handle in _devices(opened, platform):
            device = _told(opened, handle, len(devices), name)
            devices.append(_checked(opened, handle, device))
    learned = Answer(library, tuple(devices))
    if not devices:
        message = f"{len(platforms)} OpenCL platforms are here, and none has a device"
        raise NotUsable("no-device", message, learned=learned)
    if not any(device.presence is Presence.USABLE for device in devices):
        first = devices[0].reasons[0]
        raise NotUsable(first.code, first.message, learned=learned)
    return learned


def _platforms(opened: CDLL) -> list[int]:
    count = ctypes.c_uint()
    status = opened.clGetPlatformIDs(0, None, ctypes.byref(count))
    if status == _NO_PLATFORM or (not status and not count.value):
        return []
    if status:
        raise _failed("clGetPlatformIDs", status)
    handles = (ctypes.c_void_p * min(count.value, _LIMIT))()
    if status := opened.clGetPlatformIDs(len(handles), handles, None):
        raise _failed("clGetPlatformIDs", status)
    return [handle for handle in handles if handle]


def _devices(opened: CDLL, platform: int) -> list[int]:
    ask = opened.clGetDeviceIDs
    ask.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    count = ctypes.c_uint()
    status = ask(platform, _ALL_TYPES, 0, None, ctypes.byref(count))
    if status == _NO_DEVICE or (not status and not count.value):
        return []
    if status:
        raise _failed("clGetDeviceIDs", status)
    handles = (ctypes.c_void_p * min(count.value, _LIMIT))()
    if status := ask(platform, _ALL_TYPES, len(handles), handles, None):
        raise _failed("clGetDeviceIDs", status)
    return [handle for handle in handles if handle]


def _told(opened: CDLL, handle: int, index: int, platform: str) -> Device:
    info = opened.clGetDeviceInfo
    kind = _number(info, handle, _TYPE) or 0
    facts: dict[str, FactValue] = {"platform": platform}
    facts["device_type"] = next((name for bit, name in _TYPES.items() if kind & bit), "other")
    if units := _number(info, handle, _UNITS):
        facts["compute_units"] = units
    if clock := _number(info, handle, _CLOCK_MEGAHERTZ):
        facts["max_clock_hertz"] = clock * 1_000_000
    float64 = _number(info, handle, _FLOAT64)
    if float64 is not None:
        facts["float64"] = bool(float64)
    return Device(
        kind="opencl",
        index=index,
        name=_text(info, handle, _NAME),
        presence=Presence.LOADABLE,
        memory_bytes=_number(info, handle, _MEMORY) or None,
        capability=_text(info, handle, _VERSION),
        driver=_text(info, handle, _DRIVER),
        pci_address=_address(info, handle),
        facts=facts,
    )


def _checked(opened: CDLL, handle: int, device: Device) -> Device:
    if not _number(opened.clGetDeviceInfo, handle, _AVAILABLE):
        message = f"{device.name} says that it is not available"
        return replace(device, reasons=(Reason("no-device", message),))
    try:
        _fill_and_read(opened, handle, device.name)
    except NotUsable as stop:
        return replace(device, reasons=(stop.reason,))
    return replace(device, presence=Presence.USABLE)


def _fill_and_read(opened: CDLL, handle: int, name: str) -> None:
    """Fill a buffer on the device and read it back; no program is compiled for it."""
    status = ctypes.c_int()
    failed = ctypes.byref(status)
    make = opened.clCreateContext
    make.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    make.restype = ctypes.c_void_p
    queue_of = opened.clCreateCommandQueue
    queue_of.argtypes, queue_of.restype = (
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p],
        ctypes.c_void_p,
    )
    allocate = opened.clCreateBuffer
    allocate.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    allocate.restype = ctypes.c_void_p
    fill = opened.clEnqueueFillBuffer
    fill.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_size_t,
    ]
    fill.argtypes += [ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p]
    read = opened.clEnqueueReadBuffer
    read.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ]
    read.argtypes += [ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p]

    context = make(None, 1, ctypes.byref(ctypes.c_void_p(handle)), None, None, failed)
    if not context:
        raise _failed("clCreateContext", status.value)
    queue = queue_of(context, handle, 0, failed)
    if not queue:
        raise _failed("clCreateCommandQueue", status.value)
    buffer = allocate(context, _READ_WRITE, _CHECK_BYTES, None, failed)
    if not buffer:
        raise _failed("clCreateBuffer", status.value)
    size = len(_PATTERN)
    if code := fill(queue, buffer, _PATTERN, size, 0, _CHECK_BYTES, 0, None, None):
        raise _failed("clEnqueueFillBuffer", code)
    back = ctypes.create_string_buffer(_CHECK_BYTES)
    if code := read(queue, buffer, _BLOCKING, 0, _CHECK_BYTES, back, 0, None, None):
        raise _failed("clEnqueueReadBuffer", code)
    if back.raw != _PATTERN * (_CHECK_BYTES // size):
        message = f"{name} filled a buffer with a pattern, and other bytes came back"
        raise NotUsable("wrong-result", message)
    for function, thing in (
        (opened.clReleaseMemObject, buffer),
        (opened.clReleaseCommandQueue, queue),
        (opened.clReleaseContext, context),
    ):
        function.argtypes = [ctypes.c_void_p]
        function(thing)


def _raw(ask: "ctypes._NamedFuncPointer", handle: int, what: int) -> bytes:
    """Return the value of a query as bytes; b"" where the driver does not know it."""
    ask.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    buffer, length = ctypes.create_string_buffer(1024), ctypes.c_size_t()
    if ask(handle, what, len(buffer), buffer, ctypes.byref(length)):
        return b""
    return buffer.raw[: min(length.value, len(buffer))]


def _text(ask: "ctypes._NamedFuncPointer", handle: int, what: int) -> str:
    return _raw(ask, handle, what).split(b"\0")[0].decode(errors="replace").strip()


def _number(ask: "ctypes._NamedFuncPointer", handle: int, what: int) -> int | None:
    raw = _raw(ask, handle, what)
    return int.from_bytes(raw, sys.byteorder) if raw else None


def _address(ask: "ctypes._NamedFuncPointer", handle: int) -> str:
    raw = _raw(ask, handle, _PCI)
    if len(raw) != struct.calcsize("4I"):
        return ""
    domain, bus, device, function = struct.unpack("4I", raw)
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def _failed(function: str, status: int) -> NotUsable:
    name = _ERRORS.get(status, "see cl.h")
    return NotUsable("call-failed", f"{function} returned {status} ({name})")
