"""OpenCL: the loader, its drivers (ICDs), and the devices behind them.

Finds:    every libOpenCL, the ICD files in /etc/OpenCL/vendors or where OCL_ICD_VENDORS points; what the
          registry of Windows names.
Loadable: clGetPlatformIDs answers, even if it knows no platform.
Usable:   a device compiles a program that adds two arrays, and the sums are right.
Caveats:  a CPU driver such as PoCL makes OpenCL usable without a GPU; see `device_type`.
Source:   OpenCL 3.0 API specification; cl_khr_icd, "Installing and using ICDs".
"""

import os
import struct
import sys

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.declared import steering
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import (
    CDLL,
    PAIRS,
    Calls,
    addends,
    checked,
    ctypes,
    of_devices,
    require_sums,
)
from mlbackends.libraries.library_names import native_names
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, Device, Finding, Library, Presence, nonempty

GROUP = "accelerator"

_FRAMEWORK = "/System/Library/Frameworks/OpenCL.framework/OpenCL"
_FILES_LIMIT = 64

_PLATFORM_INFO, _DEVICE_INFO = "clGetPlatformInfo", "clGetDeviceInfo"
_PLATFORM_VERSION, _PLATFORM_NAME, _PLATFORM_VENDOR = 0x0901, 0x0902, 0x0903
_TYPE, _UNITS, _CLOCK_MEGAHERTZ, _MEMORY, _AVAILABLE = 0x1000, 0x1002, 0x100C, 0x101F, 0x1027
_COMPILER, _LOCAL_MEMORY, _ALLOCATION, _GROUP = 0x1028, 0x1023, 0x1010, 0x1004
_NAME, _DRIVER, _VERSION, _FLOAT64, _PCI = 0x102B, 0x102D, 0x102F, 0x1032, 0x410F
_ALL_TYPES = 0xFFFFFFFF
_TYPES = {2: "cpu", 4: "gpu", 8: "accelerator", 16: "custom"}
_LOADER_NAME_VERSION = (3, 2)
_NO_PLATFORM, _NO_DEVICE = -1001, -1
_COPIED, _BLOCKING, _BUILD_LOG = 0x21, 1, 0x1183
_LIMIT = 64
_PROGRAM = b"""__kernel void add(__global uint *data) {
    size_t i = get_global_id(0);
    data[512 + i] = data[256 + i] + data[i];
}
"""
#: Keeps NVIDIA and Intel from caching programs; PoCL gets a temporary folder.
_NO_CACHES = {"CUDA_CACHE_DISABLE": "1", "NEO_CACHE_PERSISTENT": "0"}


def find(host: Host) -> Finding:
    """Look for the loader's copies and the drivers that are registered."""
    libraries = libraries_named(host, "OpenCL", "libOpenCL", homes=("OCL_ROOT",))
    if host.platform == "darwin" and not libraries:
        # The file is in the system's shared cache, not on disk.
        libraries = [Library("OpenCL", _FRAMEWORK, found_by="system-framework", wins=True)]
    # A variable replaces the usual folder of ICD files.
    named = host.env("OCL_ICD_VENDORS") or host.env("OPENCL_VENDOR_PATH")
    place = named.rstrip("/") if named.startswith("/") else "/etc/OpenCL/vendors"
    files = [f"{place}/{name}" for name in host.listdir(place) if name.endswith(".icd")]
    drivers = []
    for file in ([place] if place.endswith(".icd") else files)[:_FILES_LIMIT]:
        library = host.read(file, 4096).split("\n")[0].strip()
        if library and library.isprintable():
            drivers.append({"file": file, "library": library})
    if ".so" in named.rsplit("/", 1)[-1]:  # ocl-icd takes the driver itself
        drivers.append({"file": "OCL_ICD_VENDORS", "library": named})
    is_windows = host.platform == "win32"
    if is_windows:
        from mlbackends.host.windows.pci import registered_drivers

        named_by = registered_drivers(host, "OpenCL\\Vendors", "OpenCLDriverName")
        drivers = [{"file": key, "library": library} for library, key in named_by.items()]
    more = host.env("OCL_ICD_FILENAMES").split(";" if is_windows else ":")[:_FILES_LIMIT]
    drivers += [{"file": "OCL_ICD_FILENAMES", "library": name} for name in more if name]
    if not libraries and not drivers:
        return Finding(reasons=(absent(host, "libOpenCL.so"),))
    warnings = tuple(
        Reason(
            "dangling-link",
            f"{row['file']} names {row['library']}, which does not exist",
            "reinstall the driver that brought the file, or remove the file",
        )
        for row in drivers
        if row["library"].startswith("/") and not host.exists(row["library"])
    )
    reasons: tuple[Reason, ...] = ()
    if not libraries:
        message = "OpenCL drivers are registered, but the loader, libOpenCL.so, is not installed"
        message = native_names(host, message)
        reasons = (Reason("not-found", message, "install an ICD loader, such as ocl-icd"),)
    elif not drivers and host.platform in ("linux", "win32"):
        place = "the registry" if is_windows else place
        message = f"the loader is installed, and no driver is registered in {place}"
        # Wheels contain Intel's driver for its CPUs, but their ICD file does not name its path.
        copies = libraries_named(host, "OpenCL driver", "libintelocl")
        text = f"no file names {copies[0].path}: write its path to {place}/intel.icd" if copies else ""
        reasons = (Reason("no-driver", message, text),)
    facts = nonempty({"drivers": drivers}) | steering(host, "opencl")
    presence = None if libraries else Presence.FOUND
    return Finding(tuple(libraries), (), facts, "", presence, reasons, warnings)


def load(opened: CDLL, library: Library) -> Answer:
    """List the platforms."""
    call = Calls(opened, "opencl", unnamed="see cl.h")
    fields = {"name": _PLATFORM_NAME, "vendor": _PLATFORM_VENDOR, "version": _PLATFORM_VERSION}
    rows = [
        {name: _text(call, _PLATFORM_INFO, platform, parameter) for name, parameter in fields.items()}
        for platform in _handles(call, "clGetPlatformIDs", (), _NO_PLATFORM)
    ]
    name, version = (_loader_text(opened, parameter) for parameter in _LOADER_NAME_VERSION)
    library = replace(library, version=version, facts=nonempty({"loader": name}))
    return Answer(library, facts=nonempty({"platforms": rows}))


def _loader_text(opened: CDLL, parameter: int) -> str:
    """Return a text about the loader, "" without the extension for it."""
    entry = getattr(opened, "clGetExtensionFunctionAddress", None)
    if entry is None:
        return ""
    entry.restype, size = ctypes.c_void_p, ctypes.c_size_t
    address = entry(b"clGetICDLoaderInfoOCLICD")
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, size, ctypes.c_void_p, ctypes.c_void_p)
    text = ctypes.create_string_buffer(256)
    if not address or callback(address)(parameter, len(text), text, None):
        return ""
    return _decoded(text.raw)


def use(opened: CDLL, library: Library) -> Answer:
    """List the devices, and let each available one add two arrays."""
    import tempfile

    call = Calls(opened, "opencl", unnamed="see cl.h")
    platforms = _handles(call, "clGetPlatformIDs", (), _NO_PLATFORM)
    if not platforms:
        raise NotUsable("no-driver", "the OpenCL loader opens, and knows no platform")
    devices: list[Device] = []
    with tempfile.TemporaryDirectory(prefix="mlbackends-opencl-") as folder:
        os.environ |= {"POCL_CACHE_DIR": folder, **_NO_CACHES}
        for platform in platforms:
            name = _text(call, _PLATFORM_INFO, platform, _PLATFORM_NAME)
            every = (ctypes.c_void_p(platform), ctypes.c_uint64(_ALL_TYPES))
            for handle in _handles(call, "clGetDeviceIDs", every, _NO_DEVICE):
                devices.append(_described(opened, call, handle, len(devices), name))
    if not devices:
        message = "the OpenCL loader knows platforms, and none of them has a device"
        raise NotUsable("no-device", message)
    return of_devices(library, devices)


def _handles(call: Calls, function: str, owners: tuple[object, ...], none: int) -> list[int]:
    """Return the handles that a function lists. none: its status if there are none."""
    count = ctypes.c_uint()
    status = call.status(function, *owners, 0, None, ctypes.byref(count))
    if status == none or (not status and not count.value):
        return []
    if status:
        raise call.failed(function, status)
    handles = (ctypes.c_void_p * min(count.value, _LIMIT))()
    call(function, *owners, len(handles), handles, None)
    return [handle for handle in handles if handle]


def _described(opened: CDLL, call: Calls, handle: int, index: int, platform: str) -> Device:
    """Describe a device, and compute on it."""
    kind = _number(call, handle, _TYPE) or 0
    float64 = _number(call, handle, _FLOAT64)
    facts = {
        "platform": platform,
        "device_type": next((name for bit, name in _TYPES.items() if kind & bit), "other"),
        "compute_units": _number(call, handle, _UNITS) or None,
        "max_clock_hertz": (_number(call, handle, _CLOCK_MEGAHERTZ) or 0) * 1_000_000 or None,
        "max_workgroup_size": _number(call, handle, _GROUP) or None,
        "workgroup_memory_bytes": _number(call, handle, _LOCAL_MEMORY) or None,
        "max_allocation_bytes": _number(call, handle, _ALLOCATION) or None,
        "float64": None if float64 is None else bool(float64),
    }
    pci = _raw(call, _DEVICE_INFO, ctypes.c_void_p(handle), _PCI)
    address = struct.unpack("4I", pci) if len(pci) == struct.calcsize("4I") else None
    device = Device(
        kind="opencl",
        index=index,
        name=_text(call, _DEVICE_INFO, handle, _NAME),
        presence=Presence.LOADABLE,
        memory_bytes=_number(call, handle, _MEMORY) or None,
        capability=_text(call, _DEVICE_INFO, handle, _VERSION),
        driver=_text(call, _DEVICE_INFO, handle, _DRIVER),
        pci_address="{:04x}:{:02x}:{:02x}.{:x}".format(*address) if address else "",
        facts=nonempty(facts),
    )
    if not _number(call, handle, _AVAILABLE):
        message = f"{device.name} reports that it is not available"
        return replace(device, reasons=(Reason("no-device", message),))
    if not _number(call, handle, _COMPILER):
        message = f"{device.name} has no compiler, and runs only its vendor's programs"
        return replace(device, reasons=(Reason("no-use-check", message),))
    return checked(device, _add, opened, call, ctypes.c_void_p(handle), device.name)


def _add(opened: CDLL, call: Calls, device: "ctypes.c_void_p", name: str) -> None:
    """Let a device compile a program that adds two arrays, run it, and check the sums."""
    status = ctypes.c_int()

    def created(function: str, *arguments: object) -> "ctypes.c_void_p":
        entry = getattr(opened, function)
        entry.restype = ctypes.c_void_p
        handle = entry(*arguments, ctypes.byref(status))
        if not handle:
            raise call.failed(function, status.value)
        return ctypes.c_void_p(handle)

    numbers = addends()
    size, source = ctypes.c_size_t(ctypes.sizeof(numbers)), ctypes.c_char_p(_PROGRAM)
    context = created("clCreateContext", None, 1, ctypes.byref(device), None, None)
    queue = created("clCreateCommandQueue", context, device, ctypes.c_uint64(0))
    buffer = created("clCreateBuffer", context, ctypes.c_uint64(_COPIED), size, numbers)
    program = created("clCreateProgramWithSource", context, 1, ctypes.byref(source), None)
    if built := call.status("clBuildProgram", program, 1, ctypes.byref(device), None, None, None):
        log = _raw(call, "clGetProgramBuildInfo", program, device, _BUILD_LOG)
        lines = _decoded(log).splitlines()
        raise call.failed("clBuildProgram", built, about="".join(lines[:1]))
    kernel, handle_bytes = created("clCreateKernel", program, b"add"), ctypes.sizeof(buffer)
    call("clSetKernelArg", kernel, 0, ctypes.c_size_t(handle_bytes), ctypes.byref(buffer))
    count, none = ctypes.byref(ctypes.c_size_t(PAIRS)), (0, None, None)
    call("clEnqueueNDRangeKernel", queue, kernel, 1, None, count, None, *none)
    start = ctypes.c_size_t(0)
    call("clEnqueueReadBuffer", queue, buffer, _BLOCKING, start, size, numbers, *none)
    require_sums(name, numbers)


def _raw(call: Calls, function: str, *arguments: object) -> bytes:
    """Return the value of a query as bytes; b"" where the driver does not know it."""
    buffer, length = ctypes.create_string_buffer(1 << 16), ctypes.c_size_t()
    into = (ctypes.c_size_t(len(buffer)), buffer, ctypes.byref(length))
    if call.status(function, *arguments, *into):
        return b""
    return buffer.raw[: min(length.value, len(buffer))]


def _text(call: Calls, function: str, handle: int, parameter: int) -> str:
    return _decoded(_raw(call, function, ctypes.c_void_p(handle), parameter))


def _decoded(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace").strip()


def _number(call: Calls, handle: int, parameter: int) -> int | None:
    raw = _raw(call, _DEVICE_INFO, ctypes.c_void_p(handle), parameter)
    return int.from_bytes(raw, sys.byteorder) if raw else None
