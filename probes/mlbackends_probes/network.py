"""Network: cards with their links and drivers, and the ports of InfiniBand and RoCE.

Finds:    interfaces that have a device and are not virtual functions; every port of a device that does RDMA.
          The columns of both, and the counters of errors, are in core/mlbackends/host/system/rows.json.
Caveats:  the firmware of a card without RDMA is not in sysfs. A virtual machine sees its own cards.
Source:   Linux Documentation/ABI/testing/sysfs-class-net, /stable/sysfs-class-infiniband and
          /networking/statistics.rst; NVIDIA, "Understanding mlx5 Linux counters".
"""

from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.pci import pci_devices
from mlbackends.host.system.rows import rows
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{active_links} links up", "{active_ports} RDMA ports active")
USUAL = {"active_ports": 0}


def find(host: Host) -> Finding:
    """Read the files of each card and of each port."""
    cards = {device.address: device for device in pci_devices(host)}
    interfaces, ports = rows(host, "interfaces"), rows(host, "rdma_ports")
    for row in interfaces:
        if card := cards.get(str(row.pop("address", ""))):
            lanes = {"pcie_lanes": card.link_width, "max_pcie_lanes": card.max_link_width}
            names = {"pci_id": f"{card.vendor}:{card.device}", "numa_node": card.numa_node}
            row |= nonempty({**names, **lanes})
    if not interfaces and not ports:
        reason = Reason("not-found", "the kernel shows no network card")
        return Finding(presence=Presence.ABSENT, reasons=(reason,))
    facts = {
        "active_links": sum(row.get("state") == "up" for row in interfaces),
        "active_ports": sum(row.get("state") == "ACTIVE" for row in ports),
        "interfaces": interfaces,
        "rdma_ports": ports,
        "interface_errors": rows(host, "interface_errors"),
        "rdma_errors": rows(host, "rdma_errors"),
    }
    return Finding(presence=Presence.FOUND, facts=nonempty(facts))
