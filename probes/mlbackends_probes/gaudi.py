"""Intel Gaudi: Habana's training and inference accelerators.

Finds:    Gaudi cards on PCI, the habanalabs driver, its device nodes, firmware versions, every
          libSynapse, and the variables that choose cards.
Caveats:  nothing is computed: a card serves one process alone.
Source:   Linux Documentation/ABI/testing/sysfs-driver-habanalabs; habanalabs_drv.c (PCI names);
          Intel Gaudi documentation, "Runtime environment variables".
"""

from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import steering
from mlbackends.host.device_nodes import accel_nodes, unusable
from mlbackends.host.host import Host
from mlbackends.host.pci import link_facts, of_vendor, pci_record
from mlbackends.host.python.packages import distribution
from mlbackends.libraries.search import absent, absent_but_on_linux, libraries_named
from mlbackends.model.records import FactValue, Finding, nonempty

GROUP = "accelerator"

_FOLDERS = ("/usr/lib/habanalabs", "/opt/habanalabs/lib")
# Below the card's folder in sysfs: the fact, and the files that may hold it.
_FILES = {
    "firmware_version": ("cpucp_ver", "armcp_ver"),
    "boot_firmware_version": ("uboot_ver",),
    "status": ("status",),
}


def find(host: Host) -> Finding:
    """Look for cards, driver, nodes and every copy of the SynapseAI runtime."""
    libraries = libraries_named(host, "SynapseAI", "libSynapse", folders=_FOLDERS)
    cards = [card for card in of_vendor(host, "1da3") if not card.is_virtual_function]
    if not libraries and not cards:
        return Finding(reasons=(absent_but_on_linux(host, "Gaudi on PCI and no libSynapse.so"),))
    plugin = distribution(host, "habana-torch-plugin")
    facts = {
        "card_count": len(cards),
        "driver_version": host.read("/sys/module/habanalabs/version", 256).strip(),
        "torch_plugin": plugin and plugin.version,
        **steering(host, "gaudi"),
    }
    # The device node and sysfs folder of each PCI address; they moved in kernel 6.2.
    places = {
        address: (f"/dev/accel/{name}", f"/sys/class/accel/{name}/device")
        for name, address in accel_nodes(host).items()
    }
    for name in host.listdir("/sys/class/habanalabs"):
        if name.startswith("hl") and not name.startswith("hl_controlD"):
            address = host.read(f"/sys/class/habanalabs/{name}/pci_addr", 64).strip().lower()
            places.setdefault(address, (f"/dev/{name}", f"/sys/class/habanalabs/{name}"))
    devices = []
    for i, card in enumerate(cards):
        node, folder = places.get(card.address, ("", ""))
        files: dict[str, FactValue] = {**link_facts(card)}
        for fact, names in _FILES.items() if folder else ():
            text = next(filter(None, (host.read(f"{folder}/{name}", 512) for name in names)), "")
            line = text.split("\n")[0].strip()
            if line and line.isprintable():
                files[fact] = line
        name = table("host/pci_names")["habana"].get(card.device, "Habana accelerator")
        lacking = unusable(host, "Gaudi", card, ("habanalabs",), node)
        devices.append(pci_record(host, card, "hpu", i, name, files, lacking))
    reasons: tuple[Reason, ...] = ()
    if not cards:
        reasons = (Reason("no-device", "SynapseAI is installed, and no Gaudi is on PCI"),)
    elif all(device.reasons for device in devices):
        reasons = devices[0].reasons
    if not libraries:
        reasons += (absent(host, "libSynapse.so", folders=_FOLDERS),)
    return Finding(tuple(libraries), tuple(devices), nonempty(facts), reasons=reasons)
