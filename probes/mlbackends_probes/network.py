"""Network: the machine's network cards, and the ports of InfiniBand and RoCE.

Finds:    the interfaces that a device is behind, not bridges, bonds or virtual functions, at most 64; the
          ports of RDMA devices, with their error counters.
Caveats:  a card's firmware is known only if the card does RDMA: for others the kernel has it behind a call.
          The counters count since the driver started or they were cleared. In a container only its own
          interfaces are visible.
Source:   Linux Documentation/ABI/testing/sysfs-class-net, /stable/sysfs-class-infiniband and
          /networking/statistics.rst; the counters' names in NVIDIA's "Understanding mlx5 Linux counters".
"""

from typing import Any

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import one_line, whole_number, word
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.pci import PciDevice, pci_devices
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"

_NET, _RDMA = "/sys/class/net", "/sys/class/infiniband"
_MOST = 64
_STATES = pattern(r"(\d{1,2}): (\w{1,40})")
_RATE = pattern(r"(\d{1,5}(?:\.\d)?) Gb/sec(?: \((\d{1,2})X)?")


def find(host: Host) -> Finding:
    """Read each card's and each port's files."""
    cards = {device.address: device for device in pci_devices(host)}
    names = [name for name in host.listdir(_NET) if host.exists(f"{_NET}/{name}/device")]
    names = [name for name in names if not host.is_link(f"{_NET}/{name}/device/physfn")][:_MOST]
    ports = host.glob(f"{_RDMA}/*/ports/*")
    ports = [port for port in ports if not host.is_link(f"{port.split('/ports/')[0]}/device/physfn")][:_MOST]
    if not names and not ports:
        reason = Reason("not-found", "the kernel shows no network card")
        return Finding(presence=Presence.ABSENT, reasons=(reason,))
    facts = {
        "interfaces": [_interface(host, name, cards) for name in names],
        "rdma_ports": [_port(host, port) for port in ports],
        "interface_errors": [
            row for name in names if (row := _counted(host, f"{_NET}/{name}", name, "interface"))
        ],
        "rdma_errors": [
            row
            for port in ports
            if (row := _counted(host, port, port.removeprefix(f"{_RDMA}/").replace("/ports/", "/"), "rdma"))
        ],
    }
    return Finding(presence=Presence.FOUND, facts=nonempty(facts))


def _interface(host: Host, name: str, cards: dict[str, PciDevice]) -> dict[str, Any]:
    folder = f"{_NET}/{name}"
    driver = word(host.readlink(f"{folder}/device/driver").rsplit("/", 1)[-1])
    device = cards.get(host.realpath(f"{folder}/device").rsplit("/", 1)[-1])
    megabits = host.read_int(f"{folder}/speed")
    rdma = host.listdir(f"{folder}/device/infiniband")[:1]
    row: dict[str, Any] = {
        "name": one_line(name, 64),
        "state": word(host.read(f"{folder}/operstate", 64)),
        # -1, or 2^32-1 of older kernels, where there is no link.
        "bits_per_second": megabits * 1_000_000 if megabits and 0 < megabits < 10_000_000 else None,
        "duplex": word(host.read(f"{folder}/duplex", 64)).replace("unknown", ""),
        "mtu": whole_number(host.read(f"{folder}/mtu", 64), lowest=1),
        "driver": driver,
        "driver_version": one_line(host.read(f"/sys/module/{driver}/version", 256), 64) if driver else "",
        "firmware": one_line(host.read(f"{_RDMA}/{rdma[0]}/fw_ver", 256), 64) if rdma else "",
    }
    if device:
        row |= {
            "pci_id": f"{device.vendor}:{device.device}",
            "numa_node": device.numa_node,
            "pcie_width": device.link_width,
            "max_pcie_width": device.max_link_width,
            "max_pcie_slot_width": device.max_slot_width,
        }
    return nonempty(row)


def _port(host: Host, folder: str) -> dict[str, Any]:
    device, _, number = folder.removeprefix(f"{_RDMA}/").partition("/ports/")
    rate = _RATE.match(host.read(f"{folder}/rate", 256))
    states = {name: _STATES.match(host.read(f"{folder}/{name}", 64)) for name in ("state", "phys_state")}
    row = {
        "name": one_line(f"{device}/{number}", 64),
        "link_layer": word(host.read(f"{folder}/link_layer", 64)),
        "state": states["state"][2] if states["state"] else "",
        "physical_state": states["phys_state"][2] if states["phys_state"] else "",
        "bits_per_second": round(float(rate[1]) * 1e9) if rate else None,
        "lanes": int(rate[2]) if rate and rate[2] else None,
        "card": one_line(host.read(f"{_RDMA}/{device}/hca_type", 256), 64),
        "board": one_line(host.read(f"{_RDMA}/{device}/board_id", 256), 64),
        "firmware": one_line(host.read(f"{_RDMA}/{device}/fw_ver", 256), 64),
    }
    return nonempty(row)


def _counted(host: Host, folder: str, name: str, kind: str) -> dict[str, Any]:
    """Return the counters of error_counters.json that are not 0, with whose they are; {} without any."""
    paths = table("host/system/error_counters")[kind]
    counts = {path: whole_number(host.read(f"{folder}/{path}", 64), lowest=1) for path in paths}
    counted = {path.rpartition("/")[2]: count for path, count in counts.items() if count is not None}
    return {"name": one_line(name, 64), **counted} if counted else {}
