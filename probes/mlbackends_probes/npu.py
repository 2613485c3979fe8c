"""NPU: the inference engines in Intel Core Ultra and AMD Ryzen AI processors.

Finds:    NPUs on PCI, the drivers intel_vpu and amdxdna, their nodes in /dev/accel, firmware, and
          the Level Zero driver for Intel's.
Caveats:  PyTorch computes on neither; OpenVINO and ONNX Runtime do. Others' NPUs have a probe of
          their own.
Source:   Linux drivers/accel/ivpu/ivpu_drv.h and drivers/accel/amdxdna (PCI names, sysfs files);
          Linux Documentation/accel/introduction.
"""

from mlbackends.host.device_nodes import accel_nodes, denied
from mlbackends.host.host import Host
from mlbackends.host.pci import FOLDER, PciDevice, of_vendor
from mlbackends.libraries.search import libraries_named
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device, Fact, FactValue, Finding
from mlbackends.model.tables import table

GROUP = "accelerator"
FACTS = (Fact("driver", str, "The kernel driver of the NPUs: intel_vpu, amdxdna."),)

_DRIVERS = {"8086": "intel_vpu", "1022": "amdxdna"}


def find(host: Host) -> Finding:
    """Look for NPUs, their drivers and nodes."""
    names: dict[str, str] = table("host/pci_names")["npu"]
    cards = [
        card
        for card in of_vendor(host, *_DRIVERS)
        if card.driver in _DRIVERS.values() or f"{card.vendor}:{card.device}" in names
    ]
    libraries = libraries_named(host, "NPU driver", "libze_intel_npu", "libze_intel_vpu")
    if not cards:
        code = "no-device" if libraries else "not-found"
        reason = Reason(code, "no NPU of Intel or AMD is on PCI")
        return Finding(tuple(libraries), reasons=(reason,))
    nodes = {address: name for name, address in accel_nodes(host).items()}
    devices = tuple(_device(host, i, card, nodes) for i, card in enumerate(cards))
    facts: dict[str, FactValue] = {}
    if drivers := sorted({card.driver for card in cards if card.driver}):
        facts["driver"] = " ".join(drivers)
    reasons = devices[0].reasons if all(device.reasons for device in devices) else ()
    return Finding(tuple(libraries), devices, facts, reasons=reasons)


def _device(host: Host, index: int, card: PciDevice, nodes: dict[str, str]) -> Device:
    number = f"{card.vendor}:{card.device}"
    facts: dict[str, FactValue] = {"pci_id": number}
    firmware = host.read(f"{FOLDER}/{card.address}/fw_version", 256).split("\n")[0].strip()
    if firmware and firmware.isprintable():
        facts["firmware_version"] = firmware
    reasons: tuple[Reason, ...] = ()
    name = nodes.get(card.address, "")
    if card.driver != (wanted := _DRIVERS[card.vendor]):
        bound = f"is bound to {card.driver}" if card.driver else "has no kernel driver"
        message = f"the NPU at {card.address} {bound}; computing needs {wanted}"
        reasons = (Reason("no-driver", message, f"load it: sudo modprobe {wanted}"),)
    elif name and (reason := denied(host, f"/dev/accel/{name}")):
        reasons = (reason,)
    return Device(
        kind="npu",
        index=index,
        name=table("host/pci_names")["npu"].get(number, "NPU"),
        driver=card.driver,
        pci_address=card.address,
        facts=facts,
        reasons=reasons,
    )
