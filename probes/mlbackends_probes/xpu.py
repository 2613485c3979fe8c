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

import struct

from msgspec.structs import replace

from mlbackends.host.device_nodes import denied, render_node
from mlbackends.host.host import Host
from mlbackends.host.pci import FOLDER, PciDevice, link_facts, of_vendor, pci_record, product_name
from mlbackends.host.variables import steering
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes, status_names
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.libraries.shared_library import with_file_version
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

VARIABLES = (
    "ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "ZE_ENABLE_VALIDATION_LAYER", "ZE_ENABLE_TRACING_LAYER",
    "ZE_ENABLE_ALT_DRIVERS", "ONEAPI_ROOT", "UR_L0_USE_IMMEDIATE_COMMANDLISTS", "NEOReadDebugKeys",
)  # fmt: skip
_HOMES = ("LEVEL_ZERO_ROOT",)
_HIERARCHIES = ("FLAT", "COMPOSITE", "COMBINED")
_SELECTOR = pattern(r"!?[A-Za-z_*]+:[^:;]+(;!?[A-Za-z_*]+:[^:;]+)*;?")
_MASK = pattern(r"\d+(\.\d+)*(,\d+(\.\d+)*)*")
_COMPUTE_DRIVERS = ("i915", "xe")
_LIMIT = 64

_UNINITIALIZED, _DEPENDENCY, _PERMISSION = 0x78000001, 0x70020000, 0x70010000
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
    "host-allocations", "device-allocations", "shared-allocations",
    "shared-allocations-across-devices", "shared-system-memory",
)  # fmt: skip
"""The members of ze_device_memory_access_properties_t in their order; 0 is no access."""
_CHECK_BYTES = 4096
_PATTERN = b"\x12\x34\x56\x78"


def find(host: Host) -> Finding:
    """Look for GPUs, their drivers and every copy of the Level Zero loader."""
    stems, folders = ("libze_loader", "ze_loader"), ("/opt/intel/lib",)
    libraries = [
        with_file_version(host, library)
        for library in libraries_named(host, "Level Zero", *stems, homes=_HOMES, folders=folders)
    ]
    cards = [card for card in of_vendor(host, "8086") if card.is_display]
    if not libraries and not cards:
        if host.platform == "darwin":
            message = "Level Zero exists for Linux and Windows, not macOS"
            return Finding(reasons=(Reason("not-this-platform", message),))
        return Finding(reasons=(absent(host, "Intel GPU on PCI and no libze_loader.so.1", _HOMES),))
    facts: dict[str, FactValue] = {"gpu_count": len(cards)}
    if drivers := sorted({card.driver for card in cards if card.driver}):
        facts["driver"] = " ".join(drivers)
    if libraries:
        found = libraries_named(host, "Level Zero driver", "libze_intel_gpu")
        if paths := [library.path for library in found]:
            facts["level_zero_drivers"] = list(paths)
    facts |= steering(host, VARIABLES)
    devices = tuple(_device(host, index, card) for index, card in enumerate(cards))
    reasons: tuple[Reason, ...] = ()
    if not cards and not host.exists("/dev/dxg"):  # below WSL the GPU is behind that, not on PCI
        reasons = (Reason("no-device", "no Intel GPU is on PCI; Level Zero needs one"),)
    elif cards and all(device.reasons for device in devices):
        reasons = devices[0].reasons
    if not libraries:
        missing = absent(host, "libze_loader.so.1", _HOMES).message
        message = f"computing needs the Level Zero loader: {missing}"
        reasons += (Reason("no-driver", message, "install Level Zero (libze1, libze-intel-gpu1)"),)
    return Finding(tuple(libraries), devices, facts, reasons=reasons, warnings=_warnings(host))


def _device(host: Host, index: int, card: PciDevice) -> Device:
    node = render_node(host, card.address)
    reasons: tuple[Reason, ...] = ()
    where = f"the Intel GPU at {card.address}"
    if not card.driver:
        message = f"{where} has no kernel driver; computing needs xe or i915"
        hint = "load it (sudo modprobe xe) or take a newer kernel"
        reasons = (Reason("no-driver", message, hint),)
    elif card.driver not in _COMPUTE_DRIVERS:
        message = f"{where} is bound to {card.driver}; computing needs xe or i915"
        reasons = (Reason("no-driver", message),)
    elif node and (reason := denied(host, node)):
        reasons = (reason,)
    # Only a driver of a GPU with memory of its own shows how much.
    paths = host.glob(f"{FOLDER}/{card.address}/drm/card*/lmem_total_bytes")
    sizes = (size for path in paths if (size := host.read_int(path)) and 0 < size < 1 << 60)
    device = pci_record(card, "xpu", index, product_name(host, card), link_facts(card), reasons)
    return replace(device, memory_bytes=next(sizes, None))


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
    call, count = _calls(opened), ctypes.c_size_t()
    call("zelLoaderGetVersions", ctypes.byref(count), None)
    count.value = min(count.value, _LIMIT)
    versions = ctypes.create_string_buffer(_VERSIONS_BYTES * (count.value + 1))
    call("zelLoaderGetVersions", ctypes.byref(count), versions)
    for start in range(0, count.value * _VERSIONS_BYTES, _VERSIONS_BYTES):
        if versions.raw[start:].split(b"\0")[0] == b"loader":
            numbers = struct.unpack_from("3i", versions.raw, start + _VERSION_AT)
            return Answer(replace(library, version=".".join(map(str, numbers))))
    return Answer(library)


def use(opened: CDLL, library: Library) -> Answer:
    """List the devices of every driver, and fill memory with the first GPU."""
    call = _calls(opened)
    status = call.status("zeInit", 0)
    if status in (_UNINITIALIZED, _DEPENDENCY):
        about, hint = "no Level Zero driver starts", "install the GPU driver (libze-intel-gpu1)"
        raise call.failed("zeInit", status, "no-driver", about=about, hint=hint)
    if status:
        code = "permission-denied" if status == _PERMISSION else "call-failed"
        raise call.failed("zeInit", status, code)
    devices: list[Device] = []
    first: tuple[int, int] | None = None
    for driver in _handles(call, "zeDriverGet"):
        version = ""
        if raw := _read(call, "zeDriverGetProperties", driver, _DRIVER_TYPE, _DRIVER_BYTES):
            (number,) = struct.unpack_from("I", raw, _DRIVER_VERSION_AT)
            version = f"{number >> 24}.{number >> 16 & 0xFF}.{number & 0xFFFF}"
        for handle in _handles(call, "zeDeviceGet", driver):
            if device := _described(call, handle, len(devices), version):
                first = first or (driver, handle)
                devices.append(device)
    if first is None:
        raise NotUsable("no-device", "zeInit succeeds, and no Level Zero driver has a GPU")
    _fill_and_read(call, *first, Answer(library, tuple(devices)))
    devices[0] = replace(devices[0], presence=Presence.USABLE)
    return Answer(library, tuple(devices), {"checked_device": 0})


def _calls(opened: CDLL) -> Calls:
    names = status_names("level_zero")
    return Calls(opened, names=names, unnamed="see ze_result_t", hexadecimal=True)


def _handles(call: Calls, function: str, *of: int) -> list[int]:
    owners, count = [ctypes.c_void_p(handle) for handle in of], ctypes.c_uint32()
    call(function, *owners, ctypes.byref(count), None)
    count.value = min(count.value, _LIMIT)
    handles = (ctypes.c_void_p * (count.value + 1))()
    if count.value:
        call(function, *owners, ctypes.byref(count), handles)
    return [handle for handle in handles[: count.value] if handle]


def _structure(kind: int, size: int, count: int = 1) -> "ctypes.Array[ctypes.c_char]":
    """Return zeroed structures of a type, which their first member names."""
    one = struct.pack("I", kind).ljust(size, b"\0")
    return ctypes.create_string_buffer(one * count, size * count)


def _read(call: Calls, function: str, handle: int, kind: int, size: int) -> bytes:
    """Return a structure of properties; b"" where the driver does not have it."""
    buffer = _structure(kind, size)
    return b"" if call.status(function, ctypes.c_void_p(handle), buffer) else buffer.raw


def _described(call: Calls, handle: int, index: int, version: str) -> Device | None:
    """Return what a driver tells of a GPU; None for what is none."""
    raw = _read(call, "zeDeviceGetProperties", handle, _DEVICE_TYPE, _DEVICE_BYTES)
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
    pci = _read(call, "zeDevicePciGetPropertiesExt", handle, _PCI_TYPE, _PCI_BYTES)
    address = struct.unpack_from("4I", pci, _PCI_AT) if pci else None
    name = raw[_NAME_AT : _NAME_AT + _NAME_BYTES].split(b"\0")[0]
    return Device(
        kind="xpu",
        index=index,
        name=name.decode(errors="replace"),
        presence=Presence.LOADABLE,
        memory_bytes=_memory(call, handle),
        pci_address="{:04x}:{:02x}:{:02x}.{:x}".format(*address) if address else "",
        features=_features(call, handle, flags),
        facts=facts,
    )


def _features(call: Calls, handle: int, flags: int) -> tuple[str, ...]:
    """Return what the GPU computes in and which memory it reaches; () where not all of it is told."""
    computes = _read(call, "zeDeviceGetModuleProperties", handle, _MODULE_TYPE, _MODULE_BYTES)
    reaches = _read(call, "zeDeviceGetMemoryAccessProperties", handle, _ACCESS_TYPE, _ACCESS_BYTES)
    if not computes or not reaches:
        return ()
    (module,) = struct.unpack_from("I", computes, _MODULE_FLAGS_AT)
    reached = struct.unpack_from(f"{len(_ACCESS)}I", reaches, _ACCESS_AT)
    return (
        *(word for flag, word in _DEVICE_FLAGS.items() if flags & flag),
        *(word for flag, word in _MODULE_FLAGS.items() if module & flag),
        *(word for word, access in zip(_ACCESS, reached, strict=True) if access),
    )


def _memory(call: Calls, handle: int) -> int | None:
    function, device, count = (
        "zeDeviceGetMemoryProperties",
        ctypes.c_void_p(handle),
        ctypes.c_uint32(),
    )
    if call.status(function, device, ctypes.byref(count), None) or not 0 < count.value <= _LIMIT:
        return None
    buffer = _structure(_MEMORY_TYPE, _MEMORY_BYTES, count.value)
    if call.status(function, device, ctypes.byref(count), buffer):
        return None
    places = range(_TOTAL_AT, count.value * _MEMORY_BYTES, _MEMORY_BYTES)
    return sum(struct.unpack_from("Q", buffer.raw, at)[0] for at in places) or None


def _fill_and_read(call: Calls, driver: int, device: int, learned: Answer) -> None:
    """Let the GPU fill memory that the host can read; the list runs at once and waits."""
    context, commands, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    queue = _structure(_QUEUE_TYPE, _QUEUE_BYTES)
    struct.pack_into("I", queue, _QUEUE_MODE_AT, _SYNCHRONOUS)
    plain, host_memory = (
        _structure(_CONTEXT_TYPE, _CONTEXT_BYTES),
        _structure(_HOST_MEMORY_TYPE, _HOST_MEMORY_BYTES),
    )
    size, alignment = ctypes.c_size_t(_CHECK_BYTES), ctypes.c_size_t(64)
    fill = (memory, _PATTERN, ctypes.c_size_t(len(_PATTERN)), size)
    steps: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("zeContextCreate", (ctypes.c_void_p(driver), plain, ctypes.byref(context))),
        (
            "zeCommandListCreateImmediate",
            (context, ctypes.c_void_p(device), queue, ctypes.byref(commands)),
        ),
        ("zeMemAllocHost", (context, host_memory, size, alignment, ctypes.byref(memory))),
        ("zeCommandListAppendMemoryFill", (commands, *fill, None, 0, None)),
    )
    for function, arguments in steps:
        call(function, *arguments, learned=learned)
    if not memory.value:
        raise NotUsable("call-failed", "zeMemAllocHost gave no memory", learned=learned)
    back = ctypes.string_at(memory.value, _CHECK_BYTES)
    call.status("zeMemFree", context, memory)
    call.status("zeCommandListDestroy", commands)
    call.status("zeContextDestroy", context)
    if back != _PATTERN * (_CHECK_BYTES // len(_PATTERN)):
        message = "the first GPU filled memory with a pattern, and the host reads other bytes there"
        raise NotUsable("wrong-result", message, learned=learned)
