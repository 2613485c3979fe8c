"""CUDA driver: the driver API, through which every CUDA program reaches a GPU.

Finds:    every libcuda.so.1: the driver's, WSL's, and forward-compatibility copies of containers.
Usable:   cuInit succeeds, and a buffer that a device filled comes back right.
Caveats:  the index is CUDA's own: after CUDA_VISIBLE_DEVICES, the fastest GPU first. A toolkit's
          stubs are for linking and are never opened. The version is that of the API; the driver's
          release stands in driver_release.
Source:   CUDA Driver API reference, cuDriverGetVersion, cuInit, cuDeviceGetAttribute.
"""

import time

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.cuda.driver import (
    CUDA_CODES,
    NO_DEVICE,
    decode,
    driver_libraries,
    driver_release,
    library_warnings,
    no_library,
    on_wsl,
    refused,
)
from mlbackends.libraries.cuda.visible_devices import environment
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Device, Fact, FactValue, Finding, Library, Presence
from mlbackends.model.tables import table

GROUP = "accelerator"
FACTS = (
    Fact("driver_release", str, "The release in the name of the libcuda that programs get."),
    Fact("forward_compatibility", bool, "Whether programs get a forward-compatibility libcuda."),
    Fact("environment", dict[str, str], "The variables that decide which GPUs a program sees."),
    Fact("device_count", int, "How many devices the driver shows to a program started here."),
)
CODES = CUDA_CODES

CHECK_SECONDS = 2.0
"""After this long no further device is computed on, so that the answer comes in time."""

_WORDS = 1 << 14
_PATTERN = 0x5EEDC0DE

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_LATE = (Reason("no-use-check", f"computing on those before it took {CHECK_SECONDS:g} s or more"),)


def find(host: Host) -> Finding:
    """Look for libcuda.so.1, and whether it fits the kernel module that is loaded."""
    facts: dict[str, FactValue] = {}
    if variables := environment(host):
        facts["environment"] = dict(variables)
    libraries = driver_libraries(host, "cuda_driver", "libcuda")
    if not libraries:
        return Finding(facts=facts, reasons=(no_library(host, "libcuda.so.1", "compute"),))
    winner = next((library for library in libraries if library.wins), libraries[0])
    reasons: tuple[Reason, ...] = ()
    if not on_wsl(host) and not driver_release(host) and not host.exists("/dev/nvidiactl"):
        message = "libcuda.so.1 is here, and no nvidia kernel module is loaded"
        reasons = (Reason("no-driver", message),)
    return Finding(
        libraries=tuple(libraries),
        facts=facts | winner.facts,
        reasons=reasons,
        warnings=library_warnings(host, libraries),
    )


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version; that needs no device and initialises nothing."""
    version = ctypes.c_int(0)
    if code := opened.cuDriverGetVersion(ctypes.byref(version)):
        raise refused("cuDriverGetVersion", code)
    return Answer(replace(library, version=decode(version.value)))


def use(opened: CDLL, library: Library) -> Answer:
    """Initialise the driver, describe each device, and compute on it."""
    _call(opened, "cuInit", ctypes.c_uint(0))
    count = ctypes.c_int(0)
    _call(opened, "cuDeviceGetCount", ctypes.byref(count))
    if count.value < 1:
        raise refused("cuDeviceGetCount", NO_DEVICE)
    start = time.monotonic()
    devices = []
    for index in range(count.value):
        device = _described(opened, index)
        if device.presence is Presence.LOADABLE:
            in_time = time.monotonic() - start < CHECK_SECONDS
            device = _computed(opened, device) if in_time else replace(device, reasons=_LATE)
        devices.append(device)
    learned = Answer(library, devices=tuple(devices), facts={"device_count": count.value})
    if not any(device.presence is Presence.USABLE for device in devices):
        reason = devices[0].reasons[0]
        raise NotUsable(reason.code, f"device 0: {reason.message}", reason.hint, learned)
    return learned


def _call(opened: CDLL, function: str, *arguments: object) -> None:
    """Call a function; raise NotUsable, with code and name, where it returns an error."""
    if code := getattr(opened, function)(*arguments):
        name = ctypes.c_char_p()
        unnamed = opened.cuGetErrorName(ctypes.c_int(code), ctypes.byref(name)) or not name.value
        text = "" if unnamed else (name.value or b"").decode(errors="replace")
        raise refused(function, code, text)


def _described(opened: CDLL, index: int) -> Device:
    device, value = ctypes.c_int(0), ctypes.c_int(0)
    try:
        _call(opened, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
    except NotUsable as stop:
        return Device("cuda", index, reasons=(stop.reason,))

    def succeeds(function: str, *arguments: object) -> bool:
        """Call a function that an old driver may lack."""
        return hasattr(opened, function) and getattr(opened, function)(*arguments) == 0

    def attribute(number: int) -> int | None:
        code = opened.cuDeviceGetAttribute(ctypes.byref(value), ctypes.c_int(number), device)
        return None if code else value.value

    # Fact or word -> the number of its CUdevice_attribute, and the factor to the fact's unit.
    attributes = table("libraries/device_attributes")
    name = ctypes.create_string_buffer(256)
    address = ctypes.create_string_buffer(32)
    uuid, memory = (ctypes.c_ubyte * 16)(), ctypes.c_size_t(0)
    succeeds("cuDeviceGetName", name, ctypes.c_int(255), device)
    succeeds("cuDeviceGetPCIBusId", address, ctypes.c_int(31), device)
    has_memory = succeeds("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    has_uuid = any(
        succeeds(function, ctypes.byref(uuid), device)
        for function in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid")
    )
    digits = bytes(uuid).hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    major, minor = attribute(_CAPABILITY_MAJOR), attribute(_CAPABILITY_MINOR)
    facts: dict[str, FactValue] = {}
    for fact, (number, factor) in attributes["cuda_numbers"].items():
        if (count := attribute(number)) is not None and count > 0:
            facts[fact] = count * factor
    return Device(
        "cuda",
        index,
        name=name.value.decode(errors="replace"),
        presence=Presence.LOADABLE,
        memory_bytes=memory.value if has_memory else None,
        capability=f"{major}.{minor}" if major and minor is not None else "",
        pci_address=address.value.decode(errors="replace").lower(),
        uuid=f"GPU-{'-'.join(parts)}" if has_uuid else "",
        features=tuple(
            word for word, number in attributes["cuda_features"].items() if attribute(number)
        ),
        facts=facts,
    )


def _computed(opened: CDLL, device: Device) -> Device:
    """Fill a buffer on the device and read it back; that makes the device usable."""
    number, context, pointer = ctypes.c_int(0), ctypes.c_void_p(), ctypes.c_uint64(0)
    result = (ctypes.c_uint32 * _WORDS)()
    size = ctypes.c_size_t(ctypes.sizeof(result))
    pattern = _PATTERN + device.index
    fill = (ctypes.c_uint32(pattern), ctypes.c_size_t(_WORDS))
    try:
        _call(opened, "cuDeviceGet", ctypes.byref(number), ctypes.c_int(device.index))
        _call(opened, "cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    except NotUsable as stop:
        return replace(device, reasons=(stop.reason,))
    try:
        _call(opened, "cuCtxPushCurrent_v2", context)
        _call(opened, "cuMemAlloc_v2", ctypes.byref(pointer), size)
        _call(opened, "cuMemsetD32_v2", pointer, *fill)
        _call(opened, "cuMemcpyDtoH_v2", ctypes.byref(result), pointer, size)
        _call(opened, "cuMemFree_v2", pointer)
        _call(opened, "cuCtxPopCurrent_v2", ctypes.byref(context))
    except NotUsable as stop:
        return replace(device, reasons=(stop.reason,))
    finally:
        opened.cuDevicePrimaryCtxRelease_v2(number)
    if wrong := sum(word != pattern for word in result):
        message = f"of {_WORDS} words that the device filled, {wrong} came back wrong"
        return replace(device, reasons=(Reason("wrong-result", message),))
    return replace(device, presence=Presence.USABLE)
