"""Intel XPU: Intel's GPUs, their kernel drivers, and Level Zero.

Finds:    Intel GPUs on PCI, i915 or xe, /dev/dri with its permissions, every libze_loader, and the variables
          that choose devices.
Loadable: the Level Zero loader reports its version.
Usable:   the first GPU fills memory, and what the host reads there is right.
Caveats:  which GPUs PyTorch supports is narrower than what Level Zero drives.
Source:   oneAPI Level Zero specification: zeInit, zeDeviceGetProperties, PCI extension,
          ze_device_module_properties_t, ze_device_memory_access_properties_t,
          zeCommandListAppendMemoryFill; "Environment variables" there and in oneAPI DPC++.
"""

import struct

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.declared import not_valid, steering
from mlbackends.host.device_nodes import render_node, unusable
from mlbackends.host.host import Host
from mlbackends.host.pci import FOLDER, link_facts, of_vendor, pci_record, product_name
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import absent, libraries_named, with_file_version
from mlbackends.model.records import Answer, Device, Finding, Library, Presence, nonempty

GROUP = "accelerator"

_HOMES = ("LEVEL_ZERO_ROOT",)
_COMPUTE_DRIVERS = ("xe", "i915")
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
#: The members of ze_device_memory_access_properties_t in their order; 0 means no access.
_ACCESS = (
    "host-allocations", "device-allocations", "shared-allocations",
    "shared-allocations-across-devices", "shared-system-memory",
)  # fmt: skip
_CHECK_BYTES = 4096
_PATTERN = b"\x12\x34\x56\x78"


def find(host: Host) -> Finding:
    """Look for GPUs, their drivers and every copy of the Level Zero loader."""
    stems, folders = ("libze_loader",), ("/opt/intel/lib",)
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
    named = libraries_named(host, "Level Zero driver", "libze_intel_gpu") if libraries else ()
    facts = {
        "gpu_count": len(cards),
        "driver": " ".join(sorted({card.driver for card in cards} - {""})),
        "level_zero_drivers": [library.path for library in named],
        **steering(host, "xpu"),
    }
    devices = []
    for index, card in enumerate(cards):
        reasons = unusable(host, "Intel GPU", card, _COMPUTE_DRIVERS, render_node(host, card.address))
        name = product_name(host, card)
        # Only drivers of GPUs with dedicated memory show its size.
        paths = host.glob(f"{FOLDER}/{card.address}/drm/card*/lmem_total_bytes")
        sizes = (size for path in paths if (size := host.read_int(path)) and 0 < size < 1 << 60)
        device = pci_record(host, card, "xpu", index, name, link_facts(card), reasons)
        devices.append(replace(device, memory_bytes=next(sizes, device.memory_bytes)))
    reasons = ()
    if not cards and not host.exists("/dev/dxg"):  # below WSL the GPU is behind that, not on PCI
        reasons = (Reason("no-device", "no Intel GPU is on PCI; Level Zero needs one"),)
    elif cards and all(device.reasons for device in devices):
        reasons = devices[0].reasons
    if not libraries:
        missing = absent(host, "libze_loader.so.1", _HOMES).message
        message = f"computing needs the Level Zero loader: {missing}"
        reasons += (Reason("no-driver", message, "install Level Zero (libze1, libze-intel-gpu1)"),)
    return Finding(
        tuple(libraries),
        tuple(devices),
        nonempty(facts),
        reasons=reasons,
        warnings=not_valid(host, "xpu"),
    )


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
        raise call.failed("zeInit", status, "no-driver", about, hint)
    if status:
        code = "permission-denied" if status == _PERMISSION else "call-failed"
        raise call.failed("zeInit", status, code)
    devices: list[Device] = []
    first: tuple[int, int] | None = None
    for driver in call.handles("zeDriverGet"):
        version = ""
        if raw := _read(call, "zeDriverGetProperties", driver, _DRIVER_TYPE, _DRIVER_BYTES):
            (number,) = struct.unpack_from("I", raw, _DRIVER_VERSION_AT)
            version = f"{number >> 24}.{number >> 16 & 0xFF}.{number & 0xFFFF}"
        for handle in call.handles("zeDeviceGet", ctypes.c_void_p(driver)):
            if device := _described(call, handle, len(devices), version):
                first = first or (driver, handle)
                devices.append(device)
    if first is None:
        raise NotUsable("no-device", "zeInit succeeds, and no Level Zero driver has a GPU")
    call.learned = Answer(library, tuple(devices))
    _fill_and_read(call, *first)
    devices[0] = replace(devices[0], presence=Presence.USABLE)
    return Answer(library, tuple(devices), {"checked_device": 0})


def _calls(opened: CDLL) -> Calls:
    return Calls(opened, "level_zero", unnamed="see ze_result_t", hexadecimal=True)


def _structure(kind: int, size: int, count: int = 1) -> "ctypes.Array[ctypes.c_char]":
    """Return zeroed structures of a type, which their first member names."""
    one = struct.pack("I", kind).ljust(size, b"\0")
    return ctypes.create_string_buffer(one * count, size * count)


def _read(call: Calls, function: str, handle: int, kind: int, size: int) -> bytes:
    """Return a structure of properties; b"" where the driver does not have it."""
    buffer = _structure(kind, size)
    return b"" if call.status(function, ctypes.c_void_p(handle), buffer) else buffer.raw


def _described(call: Calls, handle: int, index: int, version: str) -> Device | None:
    """Return a driver's description of a GPU, None for other devices."""
    raw = _read(call, "zeDeviceGetProperties", handle, _DEVICE_TYPE, _DEVICE_BYTES)
    if not raw:
        return None
    kind, _, product, flags, _, clock = struct.unpack_from("6I", raw, _KIND_AT)
    if kind != _GPU:
        return None
    pci = _read(call, "zeDevicePciGetPropertiesExt", handle, _PCI_TYPE, _PCI_BYTES)
    address = struct.unpack_from("4I", pci, _PCI_AT) if pci else None
    name = raw[_NAME_AT : _NAME_AT + _NAME_BYTES].split(b"\0")[0]
    # The types it computes in and the memory it reaches, if both are reported.
    computes = _read(call, "zeDeviceGetModuleProperties", handle, _MODULE_TYPE, _MODULE_BYTES)
    reaches = _read(call, "zeDeviceGetMemoryAccessProperties", handle, _ACCESS_TYPE, _ACCESS_BYTES)
    features: list[str] = []
    if computes and reaches:
        (module,) = struct.unpack_from("I", computes, _MODULE_FLAGS_AT)
        reached = struct.unpack_from(f"{len(_ACCESS)}I", reaches, _ACCESS_AT)
        features += [word for flag, word in _DEVICE_FLAGS.items() if flags & flag]
        features += [word for flag, word in _MODULE_FLAGS.items() if module & flag]
        features += [word for word, access in zip(_ACCESS, reached, strict=True) if access]
    function, count = "zeDeviceGetMemoryProperties", ctypes.c_uint32()
    of_device = (ctypes.c_void_p(handle), ctypes.byref(count))
    call.status(function, *of_device, None)
    count.value = min(count.value, _LIMIT)
    memories = _structure(_MEMORY_TYPE, _MEMORY_BYTES, count.value)
    has_memories = count.value and not call.status(function, *of_device, memories)
    places = range(_TOTAL_AT, count.value * _MEMORY_BYTES if has_memories else 0, _MEMORY_BYTES)
    facts = {
        "is_integrated": bool(flags & _INTEGRATED),
        "pci_id": f"8086:{product & 0xFFFF:04x}",
        "max_clock_hertz": clock * 1_000_000 or None,
        "level_zero_driver_version": version,
    }
    return Device(
        kind="xpu",
        index=index,
        name=name.decode(errors="replace"),
        presence=Presence.LOADABLE,
        memory_bytes=sum(struct.unpack_from("Q", memories.raw, at)[0] for at in places) or None,
        pci_address="{:04x}:{:02x}:{:02x}.{:x}".format(*address) if address else "",
        features=tuple(features),
        facts=nonempty(facts),
    )


def _fill_and_read(call: Calls, driver: int, device: int) -> None:
    """Let the GPU fill memory that the host can read; the list runs at once and waits."""
    context, commands, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    queue = _structure(_QUEUE_TYPE, _QUEUE_BYTES)
    struct.pack_into("I", queue, _QUEUE_MODE_AT, _SYNCHRONOUS)
    plain = _structure(_CONTEXT_TYPE, _CONTEXT_BYTES)
    call("zeContextCreate", ctypes.c_void_p(driver), plain, ctypes.byref(context))
    target = (context, ctypes.c_void_p(device))
    call("zeCommandListCreateImmediate", *target, queue, ctypes.byref(commands))
    size, alignment = ctypes.c_size_t(_CHECK_BYTES), ctypes.c_size_t(64)
    host_memory = _structure(_HOST_MEMORY_TYPE, _HOST_MEMORY_BYTES)
    call("zeMemAllocHost", context, host_memory, size, alignment, ctypes.byref(memory))
    if not memory.value:
        raise call.failed("zeMemAllocHost", 0, about="no memory")
    fill = (memory, _PATTERN, ctypes.c_size_t(len(_PATTERN)), size)
    call("zeCommandListAppendMemoryFill", commands, *fill, None, 0, None)
    back = ctypes.string_at(memory.value, _CHECK_BYTES)
    call.status("zeMemFree", context, memory)
    call.status("zeCommandListDestroy", commands)
    call.status("zeContextDestroy", context)
    call.require_filled("the first GPU", back, _PATTERN)
