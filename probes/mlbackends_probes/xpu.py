"""Intel XPU: Intel's GPUs, their kernel drivers, and Level Zero.

Finds:    Intel GPUs on PCI, i915 or xe, /dev/dri with who may open it, every libze_loader, and the
          variables that choose devices.
Loadable: the Level Zero loader tells its version.
Usable:   the first GPU fills memory, and what the host reads there is right.
Caveats:  which GPUs PyTorch supports is narrower than what Level Zero drives.
Source:   oneAPI Level Zero specification: zeInit, zeDeviceGetProperties, PCI extension,
          ze_device_module_properties_t, ze_device_memory_access_properties_t,
          zeCommandListAppendMemoryFill; "Environment variables" there and in oneAPI DPC++.
"""

import re
import struct
from collections.abc import Callable  # noqa: TC003

from msgspec.structs import replace

from mlbackends.host.device_nodes import denied, render_node
from mlbackends.host.host import Host
from mlbackends.host.pci import FOLDER, PciDevice, link_facts, of_vendor, product_name
from mlbackends.host.variables import steering
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Device, Fact, FactValue, Finding, Library, Presence

GROUP = "accelerator"
FACTS = (
    Fact("gpu_count", int, "How many Intel GPUs are on PCI."),
    Fact("driver", str, "The kernel drivers of the GPUs: xe, i915."),
    Fact("level_zero_drivers", list[str], "Level Zero drivers that lie in the loader's folders."),
    Fact("environment", dict[str, str], "The variables that steer Level Zero and are set."),
    Fact("checked_device", int, "The device on which memory was filled and read."),
)

_VARIABLES = (
    "ONEAPI_DEVICE_SELECTOR",
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
    "ZE_ENABLE_VALIDATION_LAYER",
    "ZE_ENABLE_TRACING_LAYER",
    "ZE_ENABLE_ALT_DRIVERS",
    "ONEAPI_ROOT",
    "UR_L0_USE_IMMEDIATE_COMMANDLISTS",
    "NEOReadDebugKeys",
)
_HOMES = ("LEVEL_ZERO_ROOT",)
_HIERARCHIES = ("FLAT", "COMPOSITE", "COMBINED")
_SELECTOR = pattern(r"!?[A-Za-z_*]+:[^:;]+(;!?[A-Za-z_*]+:[^:;]+)*;?")
_MASK = pattern(r"\d+(\.\d+)*(,\d+(\.\d+)*)*")
_COMPUTE_DRIVERS = ("i915", "xe")
_LIMIT = 64

_UNINITIALIZED, _DEPENDENCY, _PERMISSION = 0x78000001, 0x70020000, 0x70010000
_ERRORS = {
    0x70000001: "ZE_RESULT_ERROR_DEVICE_LOST",
    0x70000002: "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY",
    0x70000003: "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    0x70010000: "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS",
    0x70010001: "ZE_RESULT_ERROR_NOT_AVAILABLE",
    0x70020000: "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE",
    0x78000001: "ZE_RESULT_ERROR_UNINITIALIZED",
    0x78000003: "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE",
    0x78000004: "ZE_RESULT_ERROR_INVALID_ARGUMENT",
    0x7FFFFFFE: "ZE_RESULT_ERROR_UNKNOWN",
}
# Structures by type, size in bytes, and the offsets of the members that are read.
_DRIVER_TYPE, _DRIVER_BYTES, _DRIVER_VERSION_AT = 0x1, 40, 32
_DEVICE_TYPE, _DEVICE_BYTES, _KIND_AT, _NAME_AT, _NAME_BYTES = 0x3, 368, 16, 112, 256
_MEMORY_TYPE, _MEMORY_BYTES, _TOTAL_AT = 0x7, 296, 32
_PCI_TYPE, _PCI_BYTES, _PCI_AT = 0x10008, 48, 16
_MODULE_TYPE, _MODULE_BYTES, _MODULE_FLAGS_AT = 0x5, 64, 20
_ACCESS_TYPE, _ACCESS_BYTES, _ACCESS_AT = 0x8, 40, 16
_CONTEXT_TYPE, _CONTEXT_BYTES = 0xD, 24
_QUEUE_TYPE, _QUEUE_BYTES, _QUEUE_MODE_AT, _SYNCHRONOUS = 0xE, 40, 28, 1
_HOST_MEMORY_TYPE, _HOST_MEMORY_BYTES = 0x16, 24
_VERSIONS_BYTES, _VERSION_AT = 80, 68
_GPU = 1
_INTEGRATED = 1
_DEVICE_FLAGS = {0x4: "ecc", 0x8: "on-demand-paging"}
_MODULE_FLAGS = {0x1: "fp16", 0x2: "fp64", 0x4: "int64-atomics", 0x8: "dp4a"}
_ACCESS = (
    "host-allocations",
    "device-allocations",
    "shared-allocations",
    "shared-allocations-across-devices",
    "shared-system-memory",
)
"""The members of ze_device_memory_access_properties_t in their order; 0 is no access."""
_CHECK_BYTES = 4096
_PATTERN = b"\x12\x34\x56\x78"


def find(host: Host) -> Finding:
    """Look for GPUs, their drivers and every copy of the Level Zero loader."""
    libraries = libraries_named(
        host, "Level Zero", "libze_loader", "ze_loader", homes=_HOMES, folders=("/opt/intel/lib",)
    )
    libraries = [_with_version(host, library) for library in libraries]
    cards = [card for card in of_vendor(host, "8086") if card.is_display]
    if not libraries and not cards:
        return Finding(reasons=(_nothing(host),))
    facts: dict[str, FactValue] = {"gpu_count": len(cards)}
    if drivers := sorted({card.driver for card in cards if card.driver}):
        facts["driver"] = " ".join(drivers)
    if libraries:
        found = libraries_named(host, "Level Zero driver", "libze_intel_gpu")
        if paths := [library.path for library in found]:
            facts["level_zero_drivers"] = list(paths)
    facts |= steering(host, _VARIABLES)
    devices = tuple(_device(host, index, card) for index, card in enumerate(cards))
    reasons: tuple[Reason, ...] = ()
    if not cards:
        if not host.exists("/dev/dxg"):  # below WSL the GPU is behind that, not on PCI
            reasons = (Reason("no-device", "no Intel GPU is on PCI; Level Zero needs one"),)
    elif all(device.reasons for device in devices):
        reasons = devices[0].reasons
    if not libraries:
        missing = absent(host, "libze_loader.so.1", _HOMES).message
        message = f"computing needs the Level Zero loader: {missing}"
        reasons += (Reason("no-driver", message, "install Level Zero (libze1, libze-intel-gpu1)"),)
    return Finding(tuple(libraries), devices, facts, reasons=reasons, warnings=_warnings(host))


def _nothing(host: Host) -> Reason:
    if host.platform == "darwin":
        return Reason("not-this-platform", "Level Zero exists for Linux and Windows, not macOS")
    return absent(host, "Intel GPU on PCI and no libze_loader.so.1", _HOMES)


def _with_version(host: Host, library: Library) -> Library:
    """Take the version from the file's full name: libze_loader.so.1.8.0."""
    match = re.search(r"\.so\.(\d+\.\d+[\d.]*)$", host.realpath(library.path))
    return replace(library, version=match[1]) if match else library


def _device(host: Host, index: int, card: PciDevice) -> Device:
    node = render_node(host, card.address)
    reasons: tuple[Reason, ...] = ()
    where = f"the Intel GPU at {card.address}"
    if not card.driver:
        message = f"{where} has no kernel driver; computing needs xe or i915"
        reasons = (
            Reason("no-driver", message, "load it (sudo modprobe xe) or take a newer kernel"),
        )
    elif card.driver not in _COMPUTE_DRIVERS:
        message = f"{where} is bound to {card.driver}; computing needs xe or i915"
        reasons = (Reason("no-driver", message),)
    elif node and (reason := denied(host, node)):
        reasons = (reason,)
    return Device(
        kind="xpu",
        index=index,
        name=product_name(host, card),
        memory_bytes=_local_memory(host, card),
        driver=card.driver,
        pci_address=card.address,
        numa_node=card.numa_node,
        facts={"pci_id": f"{card.vendor}:{card.device}", **link_facts(card)},
        reasons=reasons,
    )


def _local_memory(host: Host, card: PciDevice) -> int | None:
    """Return the memory on the card where the driver tells it; None for a GPU without its own."""
    for path in host.glob(f"{FOLDER}/{card.address}/drm/card*/lmem_total_bytes"):
        size = host.read_int(path)
        if size is not None and 0 < size < 1 << 60:
            return size
    return None


def _warnings(host: Host) -> tuple[Reason, ...]:
    warnings = []
    hierarchy = host.env("ZE_FLAT_DEVICE_HIERARCHY")
    if hierarchy and hierarchy not in _HIERARCHIES:
        message = f"ZE_FLAT_DEVICE_HIERARCHY is {hierarchy!r}; known are {', '.join(_HIERARCHIES)}"
        warnings.append(Reason("override-invalid", message))
    mask = host.env("ZE_AFFINITY_MASK")
    if mask and not _MASK.fullmatch(mask.replace(" ", "")):
        message = f"ZE_AFFINITY_MASK is {mask!r}; Level Zero wants a list like 0,1 or 0.0,0.1"
        warnings.append(Reason("override-invalid", message))
    selector = host.env("ONEAPI_DEVICE_SELECTOR")
    if selector and not _SELECTOR.fullmatch(selector):
        message = f"ONEAPI_DEVICE_SELECTOR is {selector!r}; SYCL wants BACKEND:DEVICES, joined by ;"
        warnings.append(Reason("override-invalid", message, "such as level_zero:gpu"))
    return tuple(warnings)


# ---- in the child ------------------------------------------------------------------------------


def load(opened: CDLL, library: Library) -> Answer:
    """Ask the loader for its version, which needs neither driver nor device."""
    count = ctypes.c_size_t()
    if status := opened.zelLoaderGetVersions(ctypes.byref(count), None) & 0xFFFFFFFF:
        raise _failed("zelLoaderGetVersions", status)
    count.value = min(count.value, _LIMIT)
    versions = ctypes.create_string_buffer(_VERSIONS_BYTES * (count.value + 1))
    if status := opened.zelLoaderGetVersions(ctypes.byref(count), versions) & 0xFFFFFFFF:
        raise _failed("zelLoaderGetVersions", status)
    for start in range(0, count.value * _VERSIONS_BYTES, _VERSIONS_BYTES):
        if versions.raw[start:].split(b"\0")[0] == b"loader":
            numbers = struct.unpack_from("3i", versions.raw, start + _VERSION_AT)
            return Answer(replace(library, version=".".join(map(str, numbers))))
    return Answer(library)


def use(opened: CDLL, library: Library) -> Answer:
    """List the devices of every driver, and fill memory with the first GPU."""
    status = opened.zeInit(0) & 0xFFFFFFFF
    if status in (_UNINITIALIZED, _DEPENDENCY):
        message = f"zeInit returned {status:#x} ({_ERRORS[status]}): no Level Zero driver starts"
        raise NotUsable("no-driver", message, "install the GPU driver (libze-intel-gpu1)")
    if status == _PERMISSION:
        raise NotUsable("permission-denied", f"zeInit returned {status:#x} ({_ERRORS[status]})")
    if status:
        raise _failed("zeInit", status)
    devices: list[Device] = []
    first: tuple[int, int] | None = None
    for driver in _handles(opened, "zeDriverGet"):
        version = _driver_version(opened, driver)
        for handle in _handles(opened, "zeDeviceGet", driver):
            if device := _told(opened, handle, len(devices), version):
                first = first or (driver, handle)
                devices.append(device)
    if first is None:
        raise NotUsable("no-device", "zeInit succeeds, and no Level Zero driver has a GPU")
    _fill_and_read(opened, *first, Answer(library, tuple(devices)))
    devices[0] = replace(devices[0], presence=Presence.USABLE)
    return Answer(library, tuple(devices), {"checked_device": 0})


def _handles(opened: CDLL, function: str, *of: int) -> list[int]:
    ask = opened[function]
    ask.argtypes = [*(ctypes.c_void_p for _ in of), ctypes.c_void_p, ctypes.c_void_p]
    count = ctypes.c_uint32()
    if status := ask(*of, ctypes.byref(count), None) & 0xFFFFFFFF:
        raise _failed(function, status)
    count.value = min(count.value, _LIMIT)
    handles = (ctypes.c_void_p * (count.value + 1))()
    if count.value and (status := ask(*of, ctypes.byref(count), handles) & 0xFFFFFFFF):
        raise _failed(function, status)
    return [handle for handle in handles[: count.value] if handle]


def _structure(kind: int, size: int, count: int = 1) -> "ctypes.Array[ctypes.c_char]":
    """Return zeroed structures of a type, which their first member names."""
    one = struct.pack("I", kind).ljust(size, b"\0")
    return ctypes.create_string_buffer(one * count, size * count)


def _ask(opened: CDLL, function: str, handle: int, kind: int, size: int) -> bytes:
    """Return a structure of properties; b"" where the driver does not have it."""
    buffer = _structure(kind, size)
    ask = opened[function]
    ask.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return b"" if ask(handle, buffer) else buffer.raw


def _driver_version(opened: CDLL, driver: int) -> str:
    raw = _ask(opened, "zeDriverGetProperties", driver, _DRIVER_TYPE, _DRIVER_BYTES)
    if not raw:
        return ""
    (version,) = struct.unpack_from("I", raw, _DRIVER_VERSION_AT)
    return f"{version >> 24}.{version >> 16 & 0xFF}.{version & 0xFFFF}"


def _told(opened: CDLL, handle: int, index: int, version: str) -> Device | None:
    """Return what a driver tells of a GPU; None for what is none."""
    raw = _ask(opened, "zeDeviceGetProperties", handle, _DEVICE_TYPE, _DEVICE_BYTES)
    if not raw:
        return None
    kind, _, product, flags, _, clock = struct.unpack_from("6I", raw, _KIND_AT)
    if kind != _GPU:
        return None
    facts: dict[str, FactValue] = {"is_integrated": bool(flags & _INTEGRATED)}
    facts["pci_id"] = f"8086:{product & 0xFFFF:04x}"
    if clock:
        facts["max_clock_hertz"] = clock * 1_000_000
    if version:
        facts["level_zero_driver_version"] = version
    pci = _ask(opened, "zeDevicePciGetPropertiesExt", handle, _PCI_TYPE, _PCI_BYTES)
    address = struct.unpack_from("4I", pci, _PCI_AT) if pci else None
    name = raw[_NAME_AT : _NAME_AT + _NAME_BYTES].split(b"\0")[0]
    return Device(
        kind="xpu",
        index=index,
        name=name.decode(errors="replace"),
        presence=Presence.LOADABLE,
        memory_bytes=_memory(opened, handle),
        pci_address="{:04x}:{:02x}:{:02x}.{:x}".format(*address) if address else "",
        features=_features(opened, handle, flags),
        facts=facts,
    )


def _features(opened: CDLL, handle: int, flags: int) -> tuple[str, ...]:
    """Return what the GPU computes in and which memory it reaches; () where not all of it is told."""
    computes = _ask(opened, "zeDeviceGetModuleProperties", handle, _MODULE_TYPE, _MODULE_BYTES)
    reaches = _ask(opened, "zeDeviceGetMemoryAccessProperties", handle, _ACCESS_TYPE, _ACCESS_BYTES)
    if not computes or not reaches:
        return ()
    (module,) = struct.unpack_from("I", computes, _MODULE_FLAGS_AT)
    reached = struct.unpack_from(f"{len(_ACCESS)}I", reaches, _ACCESS_AT)
    return (
        *(word for flag, word in _DEVICE_FLAGS.items() if flags & flag),
        *(word for flag, word in _MODULE_FLAGS.items() if module & flag),
        *(word for word, access in zip(_ACCESS, reached, strict=True) if access),
    )


def _memory(opened: CDLL, handle: int) -> int | None:
    ask = opened.zeDeviceGetMemoryProperties
    ask.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    count = ctypes.c_uint32()
    if ask(handle, ctypes.byref(count), None) or not 0 < count.value <= _LIMIT:
        return None
    buffer = _structure(_MEMORY_TYPE, _MEMORY_BYTES, count.value)
    if ask(handle, ctypes.byref(count), buffer):
        return None
    sizes = (
        struct.unpack_from("Q", buffer.raw, _MEMORY_BYTES * i + _TOTAL_AT)[0]
        for i in range(count.value)
    )
    return sum(sizes) or None


def _fill_and_read(opened: CDLL, driver: int, device: int, learned: Answer) -> None:
    """Let the GPU fill memory that the host can read; the list runs at once and waits."""
    context, commands, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    queue = _structure(_QUEUE_TYPE, _QUEUE_BYTES)
    struct.pack_into("I", queue, _QUEUE_MODE_AT, _SYNCHRONOUS)
    opened.zeContextCreate.argtypes = [ctypes.c_void_p] * 3
    opened.zeCommandListCreateImmediate.argtypes = [ctypes.c_void_p] * 4
    opened.zeMemAllocHost.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ]
    fill = opened.zeCommandListAppendMemoryFill
    fill.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
    ]
    fill.argtypes += [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p]
    opened.zeMemFree.argtypes = [ctypes.c_void_p] * 2
    opened.zeCommandListDestroy.argtypes = [ctypes.c_void_p]
    opened.zeContextDestroy.argtypes = [ctypes.c_void_p]
    wanted = _structure(_CONTEXT_TYPE, _CONTEXT_BYTES)
    host_memory = _structure(_HOST_MEMORY_TYPE, _HOST_MEMORY_BYTES)
    steps: tuple[tuple[str, Callable[[], int]], ...] = (
        ("zeContextCreate", lambda: opened.zeContextCreate(driver, wanted, ctypes.byref(context))),
        (
            "zeCommandListCreateImmediate",
            lambda: opened.zeCommandListCreateImmediate(
                context, device, queue, ctypes.byref(commands)
            ),
        ),
        (
            "zeMemAllocHost",
            lambda: opened.zeMemAllocHost(
                context, host_memory, _CHECK_BYTES, 64, ctypes.byref(memory)
            ),
        ),
        (
            "zeCommandListAppendMemoryFill",
            lambda: fill(commands, memory, _PATTERN, len(_PATTERN), _CHECK_BYTES, None, 0, None),
        ),
    )
    for name, call in steps:
        if status := call() & 0xFFFFFFFF:
            raise _failed(name, status, learned)
    if not memory.value:
        raise NotUsable("call-failed", "zeMemAllocHost gave no memory", learned=learned)
    back = ctypes.string_at(memory.value, _CHECK_BYTES)
    opened.zeMemFree(context, memory)
    opened.zeCommandListDestroy(commands)
    opened.zeContextDestroy(context)
    if back != _PATTERN * (_CHECK_BYTES // len(_PATTERN)):
        message = "the first GPU filled memory with a pattern, and the host reads other bytes there"
        raise NotUsable("wrong-result", message, learned=learned)


def _failed(function: str, status: int, learned: Answer | None = None) -> NotUsable:
    name = _ERRORS.get(status, "see ze_result_t")
    return NotUsable("call-failed", f"{function} returned {status:#x} ({name})", learned=learned)
