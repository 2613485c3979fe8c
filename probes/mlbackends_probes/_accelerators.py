"""Accelerators that are rows of table.json: their cards on PCI, device nodes, and the runtime's library.

describe_NAME returns more facts about a card, and why nothing can compute on it; what a finding needs beyond
that is in _findings.py.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import steering
from mlbackends.host.device_nodes import accel_nodes, all_denied, device_nodes, unusable
from mlbackends.host.host import Host
from mlbackends.host.pci import PciDevice, link_facts, of_vendor, pci_record
from mlbackends.host.python.packages import distribution
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Device, FactValue, Finding, Library, nonempty

_Described = tuple[dict[str, FactValue], tuple[Reason, ...]]


class Accelerator(Struct, frozen=True, kw_only=True):
    """An accelerator's names. pci_names.json has the cards of its vendor, by the name of the probe.

    unlisted: device and class of other cards, as a pattern, and what these are called. count: the fact with
    the number of cards. library: the library's name; runtime: what it belongs to. file_variable: an
    environment variable with its path. module: the kernel module, whose version is a fact. packages: of
    which the versions are facts, by fact. nodes: how the names of device nodes begin; no_nodes: the message
    and hint if there are none, before them the code. is_known_by_node: a node alone is a device.
    """

    probe: str
    device: str
    device_kind: str
    vendor: str
    count: str
    library: str
    stem: str
    runtime: str
    unlisted: tuple[str, str] = ("", "")
    homes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    file_variable: str = ""
    module: str = ""
    packages: dict[str, str] = {}
    nodes: tuple[str, ...] = ()
    no_nodes: tuple[str, str, str] = ("", "", "")
    is_known_by_node: bool = False
    describe: Callable[[Host, PciDevice], _Described] | None = None

    def find(self, host: Host) -> Finding:
        """Look for cards, driver, nodes and every copy of the runtime's library."""
        libraries, cards = self._libraries(host), self._cards(host)
        prefixes = self.nodes if cards or self.is_known_by_node else ()
        nodes = [node for prefix in prefixes for node in device_nodes(host, prefix)]
        file, homes = f"{self.stem}.so", (*self.homes, *filter(None, [self.file_variable]))
        if not libraries and not cards and not nodes:
            reason = absent(host, f"{self.device} on PCI and no {file}", homes)
            if host.platform in ("win32", "darwin"):
                reason = Reason("not-this-platform", f"it is for Linux only; this is {host.platform}")
            return Finding(reasons=(reason,))
        packages = {fact: distribution(host, name) for fact, name in self.packages.items()}
        version = host.read(f"/sys/module/{self.module}/version", 256).strip() if self.module else ""
        facts = {
            self.count: len(cards),
            "nodes": nodes,
            "driver_version": version,
            **{fact: package and package.version for fact, package in packages.items()},
            **steering(host, self.probe),
        }
        devices = [self._device(host, index, card) for index, card in enumerate(cards)]
        if not cards:  # a container or a board whose accelerators are not on PCI
            devices = [
                Device(self.device_kind, i, self.device, facts={"node": node}) for i, node in enumerate(nodes)
            ]
        reasons = all_denied(host, nodes)
        if not devices:
            message = f"{self.runtime} is installed, and no {self.device} is on PCI"
            reasons = (Reason("no-device", message),)
        elif all(device.reasons for device in devices):
            reasons = devices[0].reasons
        elif self.nodes and not nodes and host.listdir("/dev"):
            reasons = (Reason(*self.no_nodes),)
        if not libraries:
            reasons += (absent(host, file, homes, self.folders),)
        return Finding(tuple(libraries), tuple(devices), nonempty(facts), reasons=reasons)

    def _libraries(self, host: Host) -> list[Library]:
        places = {"homes": self.homes, "folders": self.folders, "wheels": self.wheels}
        libraries = libraries_named(host, self.library, self.stem, **places)
        path = host.env(self.file_variable)
        if path.startswith("/") and path not in {library.path for library in libraries}:
            names = f"{self.file_variable} names"
            reasons = (Reason("dangling-link", f"{names} {path}, which does not exist"),)
            is_there = host.exists(path)
            library = Library(
                self.library,
                path,
                found_by=self.file_variable,
                wins=is_there,
                wins_because=f"{names} the file",
                reasons=() if is_there else reasons,
            )
            libraries.insert(0, library)
        return libraries

    def _cards(self, host: Host) -> list[PciDevice]:
        names = table("host/pci_names")[self.probe]
        cards = (card for card in of_vendor(host, self.vendor) if not card.is_virtual_function)
        return [
            card
            for card in cards
            if card.device in names or re.fullmatch(self.unlisted[0], f"{card.device} {card.class_code}")
        ]

    def _device(self, host: Host, index: int, card: PciDevice) -> Device:
        name = table("host/pci_names")[self.probe].get(card.device, self.unlisted[1])
        facts, reasons = self.describe(host, card) if self.describe else ({}, ())
        return pci_record(host, card, self.device_kind, index, name, facts, reasons)


# Below the card's folder in sysfs: the fact, and the files that may hold it.
_GAUDI_FILES = {
    "firmware_version": ("cpucp_ver", "armcp_ver"),
    "boot_firmware_version": ("uboot_ver",),
    "status": ("status",),
}


def describe_gaudi(host: Host, card: PciDevice) -> _Described:
    """Read the files of the driver; they and the device node moved in kernel 6.2."""
    node, folder = "", ""
    for name, address in accel_nodes(host).items():
        if address == card.address:
            node, folder = f"/dev/accel/{name}", f"/sys/class/accel/{name}/device"
    for name in () if node else host.listdir("/sys/class/habanalabs"):
        older = f"/sys/class/habanalabs/{name}"
        is_node = name.startswith("hl") and not name.startswith("hl_controlD")
        if is_node and host.read(f"{older}/pci_addr", 64).strip().lower() == card.address:
            node, folder = f"/dev/{name}", older
    facts: dict[str, FactValue] = {**link_facts(card)}
    for fact, names in _GAUDI_FILES.items() if folder else ():
        text = next(filter(None, (host.read(f"{folder}/{name}", 512) for name in names)), "")
        line = text.split("\n")[0].strip()
        if line and line.isprintable():
            facts[fact] = line
    return facts, unusable(host, "Gaudi", card, ("habanalabs",), node)


def describe_ascend(_: Host, card: PciDevice) -> _Described:
    """Look whether any kernel driver has the card."""
    message = f"the Ascend NPU at {card.address} has no kernel driver"
    reason = Reason("no-driver", message, "install the Ascend driver and firmware")
    return {**link_facts(card)}, () if card.driver else (reason,)
