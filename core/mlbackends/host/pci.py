"""The PCI devices of a machine, scanned once for each host; those of Linux are read here.

One small file per device has vendor, class and driver; what needs more reads is read only for possible
accelerators and network cards. The link of a sleeping device is not read: that would wake it, which takes a
GPU up to a second. Source: Linux Documentation/ABI/testing/sysfs-bus-pci; the PCI Code and ID
Assignment.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from mlbackends.base.patterns import DIGITS_AS_ZEROS
from mlbackends.base.quantities import decimal
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host, once_per_host
from mlbackends.model.records import Device, FactValue, nonempty

FOLDER = "/sys/bus/pci/devices"

_NAMES_FILES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
_DEVICES_LIMIT = 4096
_WIDEST = 32  # 255 means unknown
_FASTEST = 1000
_CONFIGURATION_BYTES, _EXTENDED = 4096, 256
_ACS, _REQUEST_REDIRECT = 0x000D, 0x0004
#: Beginnings of the class codes whose devices are worth the extra reads: network, display,
#: co-processor, processing accelerator.
_DETAILED = ("02", "03", "0b40", "12")
#: Vendors whose accelerators may have other classes.
_ACCELERATOR_VENDORS = ("10de", "1002", "1ae0", "1da3", "19e5", "1d0f")


#: The facts about the driver that Windows installed for a device.
DRIVER_FACTS = ("driver_version", "driver_date")


class PciDevice(Struct, frozen=True):
    """One PCI function.

    address: "0000:65:00.0". vendor, device: four hexadecimal digits. class_code: six, such as
    "030200" for a 3D controller. driver: the kernel driver that is bound to it, "" without.

    The rest is None if the kernel does not report it, if the device sleeps, or if it is not one of the kinds
    above. The link is that of the card: switches on the card itself are skipped. Its current speed falls when
    the device is idle. max_slot_width: of the port that the card is in. iommu_domain: how its addresses are
    translated: identity, DMA, DMA-FQ; "" if that is not known. registry_key: of its driver on Windows.
    """

    address: str
    vendor: str
    device: str
    class_code: str = ""
    driver: str = ""
    subsystem: str = ""
    numa_node: int | None = None
    link_width: int | None = None
    max_link_gigatransfers_per_second: float | None = None
    max_link_width: int | None = None
    max_slot_width: int | None = None
    iommu_domain: str = ""
    is_asleep: bool = False
    is_virtual_function: bool = False
    registry_key: str = ""

    @property
    def is_display(self) -> bool:
        """Whether it is a GPU by its class: VGA, 3D or other display controller."""
        return self.class_code.startswith("03")

    @property
    def is_accelerator(self) -> bool:
        """Whether it is a processing accelerator by its class."""
        return self.class_code.startswith("12")

    @property
    def is_for_guests(self) -> bool:
        """Whether a driver holds it that only passes it on to virtual machines."""
        return self.driver.startswith(("vfio", "pci-stub", "xen-pciback"))


@once_per_host
def pci_devices(host: Host) -> tuple[PciDevice, ...]:
    """Return every PCI device by address, () if there is no PCI or the kernel does not list it."""
    if host.platform == "win32":
        from mlbackends.host.windows import pci as windows

        return tuple(PciDevice(**fields) for fields in windows.pci_devices(host))
    # Virtual functions come in hundreds; the numbers that matter here are small.
    names = [name for name in host.listdir(FOLDER) if _is_address(name)]
    devices = (_read(host, name) for name in names[:_DEVICES_LIMIT])
    return tuple(device for device in devices if device is not None)


def of_vendor(host: Host, *vendors: str) -> tuple[PciDevice, ...]:
    """Return the devices of some vendors, given as four hexadecimal digits each."""
    return tuple(device for device in pci_devices(host) if device.vendor in vendors)


def product_name(host: Host, device: PciDevice) -> str:
    """Return the name of a product in the machine's copy of pci.ids; "" if it is not in it.

    Reads a megabyte, so it is for single devices.
    """
    for path in _NAMES_FILES:
        data = b"\n" + host.read_bytes(path)
        start = data.find(f"\n{device.vendor}  ".encode())
        if start < 0:
            continue
        # A vendor's products are the indented lines below it.
        match = re.search(rb"\n[0-9a-fA-F]", data[start + 1 :])
        end = start + 1 + match.start() if match else len(data)
        at = data.find(f"\n\t{device.device}  ".encode(), start, end)
        if at >= 0:
            return data[at + 8 : at + 200].split(b"\n")[0].decode(errors="replace").strip()
    return ""


def display_driver(host: Host, device: PciDevice) -> dict[str, Any]:
    """Return what Windows' registry has about a GPU and its driver; {} on other systems.

    The fields are name, memory_bytes, driver_version, and driver_date as YYYY-MM-DD.
    """
    if not device.registry_key:
        return {}
    from mlbackends.host.windows import pci as windows

    return windows.display_driver(host, device.registry_key)


def pci_record(
    host: Host,
    card: PciDevice,
    kind: str,
    index: int,
    name: str,
    facts: Mapping[str, FactValue] | None = None,
    reasons: tuple[Reason, ...] = (),
) -> Device:
    """Return the record of a PCI device, with its identifiers as the fact `pci_id`."""
    installed = display_driver(host, card)
    return Device(
        kind=kind,
        index=index,
        name=name or installed.get("name", ""),
        memory_bytes=installed.get("memory_bytes"),
        driver=card.driver,
        pci_address=card.address,
        numa_node=card.numa_node,
        facts={
            "pci_id": f"{card.vendor}:{card.device}",
            **{name: installed[name] for name in DRIVER_FACTS if name in installed},
            **(facts or {}),
        },
        reasons=reasons,
    )


def link_facts(device: PciDevice) -> dict[str, FactValue]:
    """Return what the card and its slot can do at most, as facts for a `Device` record.

    The current speed is left out because it changes with the load.
    """
    return nonempty(
        {
            "max_pcie_gigatransfers_per_second": device.max_link_gigatransfers_per_second,
            "max_pcie_width": device.max_link_width,
            "max_pcie_slot_width": device.max_slot_width,
        }
    )


def link_now(device: PciDevice) -> dict[str, FactValue]:
    """Return the current width of the link, for the `volatile` of a `Device` record."""
    return {} if device.link_width is None else {"pcie_width": device.link_width}


def is_redirected(host: Host, device: PciDevice, *, by_root: bool = False) -> bool | None:
    """Return whether a switch above a device, or its root port, redirects its peer-to-peer traffic.

    Access Control Services do that. None if there is no such bridge, or if its configuration cannot be read,
    which takes root. What passes through a root port goes to the CPU anyway, but then through the IOMMU.
    """
    bridges = _bridges(host, f"{FOLDER}/{device.address}")
    bridges = bridges[:1] if by_root else bridges[1:]
    controls = [_redirects(host, f"{FOLDER}/{bridge}/config") for bridge in bridges]
    readable = [control for control in controls if control is not None]
    return any(readable) if readable else None


@once_per_host
def _redirects(host: Host, path: str) -> bool | None:
    """Return whether a bridge's ACS control redirects requests, None if it has no such capability."""
    data = host.read_bytes(path, _CONFIGURATION_BYTES)
    at = next((at for identifier, at in extended_capabilities(data) if identifier == _ACS), None)
    if at is None:
        return None
    return bool(int.from_bytes(data[at + 6 : at + 8], "little") & _REQUEST_REDIRECT)


def extended_capabilities(configuration: bytes) -> Iterator[tuple[int, int]]:
    """Yield identifier and offset of each extended capability in a device's configuration space."""
    at, seen = _EXTENDED, set[int]()
    while at >= _EXTENDED and at + 8 <= len(configuration) and at not in seen:
        seen.add(at)
        header = int.from_bytes(configuration[at : at + 4], "little")
        yield header & 0xFFFF, at
        at = header >> 20 & 0xFFC


def _read(host: Host, address: str) -> PciDevice | None:
    folder = f"{FOLDER}/{address}"
    lines = host.read(f"{folder}/uevent", 4096).splitlines()
    event = dict(line.split("=", 1) for line in lines if "=" in line)
    vendor, _, device = event.get("PCI_ID", "").partition(":")
    if not vendor or not device:
        vendor = host.read(f"{folder}/vendor", 64)
        device = host.read(f"{folder}/device", 64)
    vendor, device = _digits(vendor, 4), _digits(device, 4)
    if not vendor or not device:
        return None
    class_code = _digits(event.get("PCI_CLASS", "") or host.read(f"{folder}/class", 64), 6)
    driver = event.get("DRIVER", "") or host.readlink(f"{folder}/driver").rsplit("/", 1)[-1]
    fields: dict[str, Any] = {
        "address": address.lower(),
        "vendor": vendor,
        "device": device,
        "class_code": class_code,
        "driver": driver,
        "subsystem": event.get("PCI_SUBSYS_ID", "").lower(),
    }
    is_other = vendor not in _ACCELERATOR_VENDORS or class_code.startswith(("01", "06"))
    if is_other and not class_code.startswith(_DETAILED):
        return PciDevice(**fields)
    node = host.read_int(f"{folder}/numa_node")
    domain = host.read(f"{folder}/iommu_group/type", 64)
    fields |= {
        "numa_node": node if node is not None and 0 <= node < 1 << 16 else None,
        "iommu_domain": domain if domain.replace("-", "").isalpha() else "",
        "is_asleep": host.read(f"{folder}/power/runtime_status", 64) == "suspended",
        "is_virtual_function": host.is_link(f"{folder}/physfn"),
    }
    if not fields["is_asleep"]:
        at, slot = _end_of_card(host, folder, vendor)
        fields |= {
            "link_width": _width(host, f"{at}/current_link_width"),
            "max_link_gigatransfers_per_second": _speed(host, f"{at}/max_link_speed"),
            "max_link_width": _width(host, f"{at}/max_link_width"),
            "max_slot_width": _width(host, f"{slot}/max_link_width") if slot else None,
        }
    return PciDevice(**fields)


def _end_of_card(host: Host, folder: str, vendor: str) -> tuple[str, str]:
    """Return the folder of the device whose link leads out of the card, and that of the card's port.

    AMD and Intel put a switch on the card, and the GPU behind it reports a link that does not
    exist (2.5 GT/s, width 1). The root port, which is the first in the path, is not on the card.
    The port is "" if nothing is above the card.
    """
    bridges = _bridges(host, folder)
    end = folder
    while len(bridges) > 1:
        at = f"{FOLDER}/{bridges[-1]}"
        if _digits(host.read(f"{at}/vendor", 64), 4) != vendor:
            break
        end = at
        bridges.pop()
    return end, f"{FOLDER}/{bridges[-1]}" if bridges else ""


def _bridges(host: Host, folder: str) -> list[str]:
    """Return the addresses of the bridges above a device, the root port first."""
    parts = [part for part in host.realpath(folder).split("/") if _is_address(part)]
    return parts[:-1]


def _is_address(name: str) -> bool:
    domain, _, place = name.translate(DIGITS_AS_ZEROS).partition(":")
    is_one = place == "00:00.0" and not domain.strip("0") and 4 <= len(domain) <= 8
    return is_one and name[-4] in "01" and name[-1] in "01234567"


def _speed(host: Host, path: str) -> float | None:
    number, sign, _ = host.read(path, 64).partition("GT/s")
    speed = decimal(number.strip()) if sign else None
    return speed if speed and speed < _FASTEST else None


def _width(host: Host, path: str) -> int | None:
    width = host.read_int(path)
    return width if width is not None and 0 < width <= _WIDEST else None


def _digits(text: str, count: int) -> str:
    """Return a hexadecimal number as lower-case digits with leading zeros, "" if it is not one."""
    text = text.strip().lower().removeprefix("0x")
    if text.translate(DIGITS_AS_ZEROS).strip("0") or not 0 < len(text) <= 8:
        return ""
    return text.zfill(count)[-count:]
