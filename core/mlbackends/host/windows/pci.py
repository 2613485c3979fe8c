r"""The PCI devices of a Windows machine, by the registry's Enum\PCI and the properties of those plugged in.

Source: "Identifiers for PCI Devices"; pciprop.h, DEVPKEY_PciDevice_...; the class key of display adapters
({4d36e968-...}) with HardwareInformation.qwMemorySize.
"""

import re
from typing import Any

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import one_line
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.windows.cpu import binary

_ENUM = "HKLM\\SYSTEM\\CurrentControlSet\\Enum\\PCI"
_CLASS = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class"
_IDS = pattern(r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})(?:&SUBSYS_([0-9A-F]{4})([0-9A-F]{4}))?", re.IGNORECASE)
_PLACE = pattern(r"\((\d{1,5}),(\d{1,2}),(\d)\)\s*$")
_RATES = (None, 2.5, 5.0, 8.0, 16.0, 32.0, 64.0)
_DRIVER = (
    *("DriverDesc", "DriverVersion", "DriverDate", "ProviderName"),
    *("HardwareInformation.qwMemorySize", "HardwareInformation.MemorySize"),
)


def pci_devices(host: Host) -> list[dict[str, Any]]:
    """Return the fields of `PciDevice` of each device that is plugged in, by address.

    If it is not known which are plugged in, all that ever were are returned.
    """
    present = host.system("present_devices")
    if present is None:
        names = [
            f"PCI\\{device}\\{instance}"
            for device in host.registry_keys(_ENUM)
            for instance in host.registry_keys(f"{_ENUM}\\{device}")
        ]
        present = {name: {} for name in names}
    devices = (_read(host, name, numbers) for name, numbers in present.items())
    return sorted((device for device in devices if device), key=lambda device: str(device["address"]))


def _read(host: Host, name: str, numbers: dict[str, int]) -> dict[str, Any]:
    ids = _IDS.search(name)
    values = host.registry(_ENUM + name[3:], "Service", "ClassGUID", "LocationInformation", "Driver")
    kind = str(values.get("ClassGUID", "")).lower()
    if "base_class" in numbers:
        code = f"{numbers['base_class']:02x}{numbers.get('sub_class', 0):02x}00"
    else:
        code = table("host/windows/names")["device_classes"].get(kind, "")
    # Wine's adapter does not have its own numbers.
    if not ids or ids[1] == "0000":
        return {}
    # Windows writes bus, device and function in parentheses at the end.
    address, place = "", _PLACE.search(str(values.get("LocationInformation", "")))
    if place:
        bus, slot, function = map(int, place.groups())
        address = f"{bus >> 8:04x}:{bus & 255:02x}:{slot:02x}.{function:x}"
    widest = numbers.get("max_link_speed", 0)
    return {
        "address": address,
        "vendor": ids[1].lower(),
        "device": ids[2].lower(),
        "class_code": code,
        "driver": str(values.get("Service", "")),
        "subsystem": f"{ids[4]}:{ids[3]}".lower() if ids[3] else "",
        "numa_node": numbers.get("numa_node"),
        "link_width": numbers.get("link_width") or None,
        "max_link_gigatransfers_per_second": _RATES[widest] if widest < len(_RATES) else None,
        "max_link_width": numbers.get("max_link_width") or None,
        "registry_key": f"{_CLASS}\\{values['Driver']}" if values.get("Driver") else "",
    }


def display_driver(host: Host, registry_key: str) -> dict[str, Any]:
    """Return name, driver_version, driver_date (ISO) and memory_bytes of a display adapter; {} without."""
    values = host.registry(registry_key, *_DRIVER)
    # A number, or binary in some drivers.
    data = binary(values.get(_DRIVER[-2])) or binary(values.get(_DRIVER[-1]))
    memory = int.from_bytes(data, "little")
    day = re.fullmatch(r"(\d{1,2})-(\d{1,2})-(\d{4})", str(values.get("DriverDate", "")))
    facts = {
        "name": one_line(str(values.get("DriverDesc", ""))),
        "driver_version": one_line(str(values.get("DriverVersion", ""))),
        "driver_date": f"{day[3]}-{int(day[1]):02}-{int(day[2]):02}" if day else "",
        "memory_bytes": memory if memory < 1 << 60 else 0,
    }
    return {name: value for name, value in facts.items() if value}


def registered_drivers(host: Host, khronos: str, name: str) -> dict[str, str]:
    """Return the files of OpenCL's or Vulkan's drivers, and the registry key that names each.

    khronos: the key below Khronos whose values are named by the files. name: the value in the key of a
    display adapter.
    """
    key = f"HKLM\\SOFTWARE\\Khronos\\{khronos}"
    drivers = {file: key for file, is_off in host.registry(key).items() if is_off == 0}
    for device in pci_devices(host):
        if device["registry_key"]:
            named = host.registry(device["registry_key"], name).get(name, [])
            listed = named if isinstance(named, list) else [str(named)]
            drivers |= dict.fromkeys(filter(None, listed), device["registry_key"])
    return {file.replace("\\", "/"): key for file, key in drivers.items()}
