"""Vulkan: the loader, its drivers (ICDs), and the devices behind them.

Finds:    every libvulkan, the driver manifests in icd.d, in the registry or where VK_DRIVER_FILES points.
Loadable: vkEnumerateInstanceVersion answers; the devices are listed through an instance.
Usable:   a device adds two arrays of integers with a shader, and the sums are right.
Caveats:  a device of type `cpu` (llvmpipe) is not a GPU.
Source:   Vulkan specification, vkCreateInstance, VkPhysicalDeviceProperties; Vulkan loader,
          "Driver discovery".
"""

import msgspec
from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.host.declared import steering
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, Finding, Library, Presence, nonempty

GROUP = "accelerator"

_STEMS = ("libvulkan", "libMoltenVK")
_LIMIT = 64


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
        message = "Vulkan drivers are registered, but the loader, libvulkan.so.1, is not installed"
        reasons = (Reason("not-found", message, "install the Vulkan loader (libvulkan1)"),)
    elif not drivers and host.platform in ("linux", "win32"):
        places = "the registry" if host.platform == "win32" else ", ".join(folders)
        places = _named(host)[1] or places
        message = f"the loader is installed, and no driver is registered in {places}"
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
    places = (only or host.env("VK_ADD_DRIVER_FILES")).split(";" if is_windows else ":")
    if is_windows and not only:
        from mlbackends.host.windows.pci import registered_drivers

        places += registered_drivers(host, "Vulkan\\Drivers", "VulkanDriverName")
    for folder in () if only or is_windows else dict.fromkeys(folders):
        places += [f"{folder}/{name}" for name in host.listdir(folder)]
    files: list[str] = []
    for path in places:
        is_folder = only and path.startswith("/") and not path.endswith(".json")
        files += [f"{path}/{name}" for name in host.listdir(path)] if is_folder else [path]
    manifests = dict.fromkeys(path for path in files if path.endswith(".json"))
    rows, warnings = [], []
    for path in places if only else ():
        if path.startswith("/") and not host.exists(path):
            message = f"{variable} names {path}, which does not exist"
            hint = "name a manifest that exists, or unset the variable: no other driver is used"
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
            message = f"{file} names {path}, which does not exist"
            hint = "reinstall the driver that brought the manifest, or remove it"
            warnings.append(Reason("dangling-link", message, hint))
    return rows, warnings


def load(opened: CDLL, library: Library) -> Answer:
    """Ask the loader for the version of Vulkan that it speaks."""
    from mlbackends.libraries.vulkan import version_text

    version, call = ctypes.c_uint32(), Calls(opened, "vulkan", unnamed="see VkResult")
    call("vkEnumerateInstanceVersion", ctypes.byref(version))
    return Answer(replace(library, version=version_text(version.value)))


def use(opened: CDLL, library: Library) -> Answer:
    """List the devices through an instance, and let each add two arrays."""
    from mlbackends.libraries.vulkan import added

    return added(opened, library)
