"""CUDA driver: the driver API, through which every CUDA program reaches a GPU.

Finds:    every libcuda.so.1: the driver's, WSL's, and forward-compatibility copies of containers.
Usable:   cuInit succeeds, and a buffer that a device filled comes back right.
Caveats:  the index is CUDA's own: after CUDA_VISIBLE_DEVICES, the fastest GPU first. A toolkit's
          stubs are for linking and are never opened. The version is that of the API; driver_release has
          the driver's release.
Source:   CUDA Driver API reference, cuDriverGetVersion, cuInit, cuDeviceGetAttribute.
"""

import time

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.cuda import driver
from mlbackends.libraries.cuda.visible_devices import environment
from mlbackends.libraries.library_names import native_names
from mlbackends.model.records import Answer, Device, FactValue, Finding, Library, Presence, nonempty

GROUP = "accelerator"
SUMMARY = ("CUDA {version}", "driver {driver_release}")

#: After this long no further device is computed on, so that the answer comes in time.
CHECK_SECONDS = 2.0

_WORDS = 1 << 14
_PATTERN = 0x5EEDC0DE

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_LATE = (Reason("no-use-check", f"computing on those before it took {CHECK_SECONDS:g} s or more"),)


def find(host: Host) -> Finding:
    """Look for libcuda.so.1, and whether it fits the kernel module that is loaded."""
    facts = nonempty({"environment": environment(host)})
    libraries = driver.driver_libraries(host, "cuda_driver", "libcuda")
    if not libraries:
        return Finding(facts=facts, reasons=(driver.no_library(host, "libcuda.so.1", "compute"),))
    winner = next((library for library in libraries if library.wins), libraries[0])
    reasons: tuple[Reason, ...] = ()
    has_module = driver.driver_release(host) or host.exists("/dev/nvidiactl")
    if not has_module and not driver.on_wsl(host):
        message = native_names(host, "libcuda.so.1 is installed, and no nvidia kernel module is loaded")
        reasons = (Reason("no-driver", message),)
    return Finding(
        libraries=tuple(libraries),
        facts=facts | winner.facts,
        reasons=reasons,
        warnings=driver.library_warnings(host, libraries),
    )


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version; that needs no device and initialises nothing."""
    version = ctypes.c_int(0)
    if code := opened.cuDriverGetVersion(ctypes.byref(version)):
        raise driver.refused("cuDriverGetVersion", code)
    return Answer(replace(library, version=driver.decode(version.value)))


def use(opened: CDLL, library: Library) -> Answer:
    """Initialise the driver, describe each device, and compute on it."""
    call = driver.CudaCalls(opened, namer="cuGetErrorName", unnamed="")
    call("cuInit", 0)
    (count,) = call.numbers("cuDeviceGetCount", 1)
    if count < 1:
        raise driver.refused("cuDeviceGetCount", driver.NO_DEVICE)
    start, handle = time.monotonic(), ctypes.c_int(0)
    devices = []
    for index in range(count):
        device = Device("cuda", index)
        try:
            call("cuDeviceGet", ctypes.byref(handle), index)
            device = _described(opened, call, handle, index)
            if time.monotonic() - start < CHECK_SECONDS:
                _compute(opened, call, handle, _PATTERN + index)
                device = replace(device, presence=Presence.USABLE)
            else:
                device = replace(device, reasons=_LATE)
        except NotUsable as stop:
            device = replace(device, reasons=(stop.reason,))
        devices.append(device)
    learned = Answer(library, devices=tuple(devices), facts={"device_count": count})
    if not any(device.presence is Presence.USABLE for device in devices):
        reason = devices[0].reasons[0]
        raise NotUsable(reason.code, f"device 0: {reason.message}", reason.hint, learned)
    return learned


def _described(opened: CDLL, call: Calls, device: "ctypes.c_int", index: int) -> Device:
    value = ctypes.c_int(0)

    def succeeds(function: str, *arguments: object) -> bool:
        """Call a function that an old driver may lack."""
        return hasattr(opened, function) and call.status(function, *arguments) == 0

    def attribute(number: int) -> int | None:
        refused = call.status("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return None if refused else value.value

    # Fact or word -> the number of its CUdevice_attribute, and the factor to the fact's unit.
    attributes = table("libraries/device_attributes")
    name = ctypes.create_string_buffer(256)
    address = ctypes.create_string_buffer(32)
    uuid, memory = (ctypes.c_ubyte * 16)(), ctypes.c_size_t(0)
    succeeds("cuDeviceGetName", name, 255, device)
    succeeds("cuDeviceGetPCIBusId", address, 31, device)
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
        # In MIG mode it is that of the instance.
        uuid=f"{'MIG' if b' MIG ' in name.value else 'GPU'}-{'-'.join(parts)}" if has_uuid else "",
        features=tuple(word for word, number in attributes["cuda_features"].items() if attribute(number)),
        facts=facts,
    )


def _compute(opened: CDLL, call: Calls, device: "ctypes.c_int", pattern: int) -> None:
    """Fill a buffer on the device and read it back."""
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64(0)
    result = (ctypes.c_uint32 * _WORDS)()
    size = ctypes.c_size_t(ctypes.sizeof(result))
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxPushCurrent_v2", context)
        call("cuMemAlloc_v2", ctypes.byref(pointer), size)
        call("cuMemsetD32_v2", pointer, ctypes.c_uint32(pattern), ctypes.c_size_t(_WORDS))
        call("cuMemcpyDtoH_v2", ctypes.byref(result), pointer, size)
        call("cuMemFree_v2", pointer)
        call("cuCtxPopCurrent_v2", ctypes.byref(context))
    finally:
        opened.cuDevicePrimaryCtxRelease_v2(device)
    if wrong := sum(word != pattern for word in result):
        message = f"of {_WORDS} words that the device filled, {wrong} came back wrong"
        raise NotUsable("wrong-result", message)
