"""Vulkan: the loader, its drivers (ICDs), and the devices behind them.

Finds:    every libvulkan, the driver manifests in icd.d, in the registry or where VK_DRIVER_FILES points.
Loadable: vkEnumerateInstanceVersion answers; the devices are listed through an instance.
Usable:   a device adds two arrays of integers by a shader of ours, and the sums are right.
Caveats:  a device of type `cpu` (llvmpipe) is no GPU.
Source:   Vulkan specification, vkCreateInstance, VkPhysicalDeviceProperties; Vulkan loader,
          "Driver discovery".
"""

import os
import struct

import msgspec
from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import steering
from mlbackends.libraries.c_calls import CDLL, Calls, checked, ctypes, of_devices
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.libraries.vulkan import add, structure
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Device, Fact, Finding, Library, Presence, nonempty

GROUP = "accelerator"
FACTS = (
    Fact("drivers", list[dict[str, str]], "Driver manifests: file, library and Vulkan version."),
)

_STEMS = ("libvulkan", "libMoltenVK")
_LIMIT = 64
_HEAPS_LIMIT = 16
_TYPES = ("other", "integrated_gpu", "discrete_gpu", "virtual_gpu", "cpu")
_INCOMPATIBLE_DRIVER, _EXTENSION_NOT_PRESENT, _INCOMPLETE = -9, -7, 5
_NVIDIA = 0x10DE
_VERSION_1_1 = 1 << 22 | 1 << 12
# Offsets in VkPhysicalDeviceProperties2, its properties, VkPhysicalDeviceDriverProperties and
# VkPhysicalDeviceMemoryProperties.
_PROPERTIES_AT, _NAME_AT, _NAME_BYTES = 16, 20, 256
_LIMITS = {
    "max_storage_buffer_bytes": 324,
    "workgroup_memory_bytes": 512,
    "max_workgroup_size": 528,
}
_DRIVER_NAME_AT, _DRIVER_INFO_AT = 20, 276
_MEMORY_BYTES, _HEAP_COUNT_AT, _HEAPS_AT, _HEAP_BYTES = 520, 260, 264, 16
_DEVICE_LOCAL = 1


def find(host: Host) -> Finding:
    """Look for the loader's copies and the drivers that are registered."""
    libraries = libraries_named(host, "Vulkan", *_STEMS, homes=("VULKAN_SDK",))
    home = host.env("HOME")
    config = host.env("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    data = host.env("XDG_DATA_HOME") or (f"{home}/.local/share" if home else "")
    shared = (host.env("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
    parents = [config, "/etc/xdg", "/usr/local/etc", "/etc", data, *shared]
    folders = [f"{parent.rstrip('/')}/vulkan/icd.d" for parent in parents if parent.startswith("/")]
    drivers, warnings = _drivers(host, folders)
    if not libraries and not drivers:
        return Finding(reasons=(absent(host, "libvulkan.so", ("VULKAN_SDK",)),))
    reasons: tuple[Reason, ...] = ()
    if not libraries:
        message = "Vulkan drivers are registered, but there is no loader, libvulkan.so.1"
        reasons = (Reason("not-found", message, "install the Vulkan loader (libvulkan1)"),)
    elif not drivers and host.platform in ("linux", "win32"):
        places = "the registry" if host.platform == "win32" else ", ".join(folders)
        places = _named(host)[1] or places
        message = f"the loader is here, and no driver is registered in {places}"
        reasons = (Reason("no-driver", message),)
    facts = nonempty({"drivers": drivers}) | steering(host, "vulkan")
    presence = None if libraries else Presence.FOUND
    return Finding(tuple(libraries), (), facts, "", presence, reasons, tuple(warnings))


def _named(host: Host) -> tuple[str, str]:
    """Return the variable that replaces the places of manifests, with its value; "" for none."""
    names = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
    return next(((name, value) for name in names if (value := host.env(name))), ("", ""))


def _drivers(host: Host, folders: list[str]) -> tuple[list[dict[str, str]], list[Reason]]:
    """Return what the loader's manifests name, with a warning for each library that is not there.

    folders: where the loader looks, in its order; a variable replaces them. A bare name of a library is
    left to the dynamic loader.
    """
    variable, only = _named(host)
    is_windows = host.platform == "win32"
    found = (only or host.env("VK_ADD_DRIVER_FILES")).split(";" if is_windows else ":")
    if is_windows and not only:
        from mlbackends.host.windows.pci import registered_drivers

        found += registered_drivers(host, "Vulkan\\Drivers", "VulkanDriverName")
    for folder in () if only or is_windows else dict.fromkeys(folders):
        found += [f"{folder}/{name}" for name in host.listdir(folder)]
    files: list[str] = []
    for path in found:
        is_folder = only and path.startswith("/") and not path.endswith(".json")
        files += [f"{path}/{name}" for name in host.listdir(path)] if is_folder else [path]
    manifests = dict.fromkeys(path for path in files if path.endswith(".json"))
    rows, warnings = [], []
    for path in found if only else ():
        if path.startswith("/") and not host.exists(path):
            message = f"{variable} names {path}, which is not there"
            hint = "name a manifest that is there, or unset the variable: no other driver is taken"
            warnings.append(Reason("dangling-link", message, hint))
    for file in list(manifests)[:_LIMIT]:
        try:
            decoded = msgspec.json.decode(host.read_bytes(file, 1 << 16))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        manifest = decoded.get("ICD") if isinstance(decoded, dict) else None
        library = manifest.get("library_path") if isinstance(manifest, dict) else None
        if not isinstance(manifest, dict) or not isinstance(library, str) or not library:
            continue
        row = {"file": file, "library": library}
        if isinstance(version := manifest.get("api_version"), str):
            row["api_version"] = version
        rows.append(row)
        is_relative = "/" in library and not library.startswith("/")
        path = f"{file.rsplit('/', 1)[0]}/{library}" if is_relative else library
        if path.startswith("/") and not host.exists(path):
            message = f"{file} names {path}, which is not there"
            hint = "reinstall the driver that brought the manifest, or remove it"
            warnings.append(Reason("dangling-link", message, hint))
    return rows, warnings


def load(opened: CDLL, library: Library) -> Answer:
    """Ask the loader for the version of Vulkan that it speaks."""
    version, call = ctypes.c_uint32(), Calls(opened, "vulkan", unnamed="see VkResult")
    call("vkEnumerateInstanceVersion", ctypes.byref(version))
    return Answer(replace(library, version=_version(version.value)))


def use(opened: CDLL, library: Library) -> Answer:
    """List the devices through an instance, and let each add two arrays."""
    # A question leaves no files behind: Mesa's and NVIDIA's caches of shaders.
    os.environ |= {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
    call = Calls(opened, "vulkan", unnamed="see VkResult")
    listed = call.handles("vkEnumeratePhysicalDevices", _instance(call), incomplete=_INCOMPLETE)
    if not listed:
        raise NotUsable("no-device", "Vulkan's drivers load, and none has a device")
    devices = [_described(opened, handle, index) for index, handle in enumerate(listed)]
    return of_devices(
        library,
        [
            checked(device, add, opened, call, handle, device.name)
            for device, handle in zip(devices, listed, strict=True)
        ],
    )


def _instance(call: Calls) -> "ctypes.c_void_p":
    """Return an instance of Vulkan 1.1; what is created ends with the process."""
    program = structure("VkApplicationInfo", 0, 0, 0, 0, _VERSION_1_1)
    extension = (ctypes.c_char_p * 1)(b"VK_KHR_portability_enumeration")
    instance, status = ctypes.c_void_p(), 0
    # MoltenVK's devices, which do not have all of Vulkan, are listed only where that is asked for.
    for portable in (0, 1):
        names = (portable, extension if portable else 0)
        wanted = structure("VkInstanceCreateInfo", portable, program, 0, 0, *names)
        status = call.status("vkCreateInstance", wanted, None, ctypes.byref(instance))
        if status != _INCOMPATIBLE_DRIVER:
            break
    if status in (_INCOMPATIBLE_DRIVER, _EXTENSION_NOT_PRESENT):
        raise call.failed("vkCreateInstance", status, "no-driver", "no driver loads")
    if status or not instance.value:
        raise call.failed("vkCreateInstance", status)
    return instance


def _described(opened: CDLL, handle: int, index: int) -> Device:
    told = structure("VkPhysicalDeviceDriverProperties", 0, b"", b"", b"")
    properties = structure("VkPhysicalDeviceProperties2", b"", extension=told)
    # Twice the size, so that a driver of another opinion does not write over other memory.
    memory = ctypes.create_string_buffer(_MEMORY_BYTES * 2)
    opened.vkGetPhysicalDeviceProperties2(ctypes.c_void_p(handle), properties)
    opened.vkGetPhysicalDeviceMemoryProperties(ctypes.c_void_p(handle), memory)
    raw = properties.raw[_PROPERTIES_AT:]
    api, driver, vendor, _, kind = struct.unpack_from("5I", raw)
    (heaps,) = struct.unpack_from("I", memory.raw, _HEAP_COUNT_AT)
    local = 0
    for heap in range(min(heaps, _HEAPS_LIMIT)):
        size, flags = struct.unpack_from("QI", memory.raw, _HEAPS_AT + heap * _HEAP_BYTES)
        local += size if flags & _DEVICE_LOCAL else 0

    def text(at: int, raw: bytes = told.raw) -> str:
        return raw[at : at + _NAME_BYTES].split(b"\0")[0].decode(errors="replace")

    facts = {
        "vendor_id": f"{vendor:04x}",
        "device_type": _TYPES[kind] if kind < len(_TYPES) else "other",
        "driver_name": text(_DRIVER_NAME_AT),
        "driver_info": text(_DRIVER_INFO_AT),
        **{name: struct.unpack_from("I", raw, at)[0] or None for name, at in _LIMITS.items()},
    }
    # NVIDIA packs the version of its driver in its own way.
    packed = f"{driver >> 22}.{driver >> 14 & 0xFF:02}.{driver >> 6 & 0xFF:02}"
    return Device(
        kind="vulkan",
        index=index,
        name=text(_NAME_AT, raw),
        presence=Presence.LOADABLE,
        memory_bytes=local or None,
        capability=_version(api),
        driver=packed if vendor == _NVIDIA else _version(driver),
        facts=nonempty(facts),
    )


def _version(number: int) -> str:
    return f"{number >> 22 & 0x7F}.{number >> 12 & 0x3FF}.{number & 0xFFF}"
