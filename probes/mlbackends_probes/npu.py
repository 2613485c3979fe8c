"""NPU: the inference engines in Intel Core Ultra and AMD Ryzen AI processors.

Finds:    NPUs on PCI, the drivers intel_vpu and amdxdna, their nodes in /dev/accel, firmware, and
          the Level Zero driver for Intel's.
Caveats:  PyTorch computes on neither; OpenVINO and ONNX Runtime do. Others' NPUs have a probe of
          their own.
Source:   Linux drivers/accel/ivpu/ivpu_drv.h and drivers/accel/amdxdna (PCI names, sysfs files);
          Linux Documentation/accel/introduction.
"""

from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.device_nodes import accel_nodes, unusable
from mlbackends.host.host import Host
from mlbackends.host.pci import FOLDER, of_vendor
from mlbackends.libraries.search import libraries_named
from mlbackends.model.records import Device, Finding, nonempty

GROUP = "accelerator"

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
        return Finding(tuple(libraries), reasons=(Reason(code, "no NPU of Intel or AMD is on PCI"),))
    nodes = {address: f"/dev/accel/{name}" for name, address in accel_nodes(host).items()}
    devices = []
    for i, card in enumerate(cards):
        number, node = f"{card.vendor}:{card.device}", nodes.get(card.address, "")
        firmware = host.read(f"{FOLDER}/{card.address}/fw_version", 256).split("\n")[0].strip()
        facts = {"pci_id": number, "firmware_version": firmware if firmware.isprintable() else ""}
        device = Device(
            kind="npu",
            index=i,
            name=names.get(number, "NPU"),
            driver=card.driver,
            pci_address=card.address,
            facts=nonempty(facts),
            reasons=unusable(host, "NPU", card, (_DRIVERS[card.vendor],), node),
        )
        devices.append(device)
    drivers = " ".join(sorted({card.driver for card in cards} - {""}))
    reasons = devices[0].reasons if all(device.reasons for device in devices) else ()
    return Finding(tuple(libraries), tuple(devices), nonempty({"driver": drivers}), reasons=reasons)
