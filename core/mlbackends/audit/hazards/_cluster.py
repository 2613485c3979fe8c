"""Hazards of nodes in clusters: mounts, network cards, InfiniBand and RoCE, and what Slurm expects."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms
from mlbackends.base.quantities import whole_number
from mlbackends.base.tables import table

_Row = dict[str, Any]
_ENDS = ("max_pcie_width", "max_pcie_slot_width")


def _ports(report: ReportView) -> list[_Row]:
    if not (ports := report.fact("network.rdma_ports", [])):
        raise DoesNotApply("the machine has no RDMA device")
    return list(ports)


def _alike(row: _Row, rows: list[_Row]) -> list[_Row]:
    """Return the active ports of the same kind of card and link layer."""
    kind = ("board", "card", "link_layer")
    return [other for other in rows if other.get("state") == "ACTIVE" and _has_same(row, other, *kind)]


def _has_same(row: _Row, other: _Row, *names: str) -> bool:
    return all(row.get(name) == other.get(name) for name in names)


def _seen(
    message: str, *rows: _Row, fact: str = "rdma_ports", is_note: bool = False, hint: str = ""
) -> Symptom:
    evidence: dict[str, Any] = {f"network.{fact}": list(rows)}
    return Symptom(message, hint, evidence=evidence, severity=Severity.NOTE if is_note else None)


def _number(port: _Row) -> str:
    return str(port.get("name", "")).rpartition("/")[2]


def rdma_port_down(report: ReportView) -> Symptoms:
    """Yield one for each port that is not active; a note if no such port of another card is."""
    ports = _ports(report)
    for port in ports:
        state = port.get("state", "ACTIVE")
        others = [other for other in _alike(port, ports) if _number(other) == _number(port)][:1]
        if state == "INIT" and port.get("link_layer") == "InfiniBand":
            message = f"{port['name']} has a link, and no subnet manager has configured it"
            yield _seen(
                message, port, hint="start a subnet manager (opensm) on a node or switch of the fabric"
            )
        elif state != "ACTIVE":
            physical = f" ({port['physical_state']})" if "physical_state" in port else ""
            rest = f"; {others[0]['name']}, of a card of the same kind, is ACTIVE" if others else ""
            yield _seen(f"{port['name']} is {state}{physical}{rest}", port, *others, is_note=not others)


def rdma_port_slow(report: ReportView) -> Symptoms:
    """Yield one for each active port that is slower than one of the same board, or has a single lane."""
    active = [port for port in _ports(report) if port.get("state") == "ACTIVE" and "bits_per_second" in port]
    for port in active:
        best = max(_alike(port, active), key=_speed)
        speed = f"{port['name']} runs at {_speed(port) / 1e9:g} Gbit/s"
        if _speed(port) < _speed(best):
            yield _seen(f"{speed}, {best['name']} of the same kind at {_speed(best) / 1e9:g}", port, best)
        elif port.get("lanes") == 1 and port.get("link_layer") == "InfiniBand":
            yield _seen(f"{speed}, on one lane", port)


def _speed(row: _Row) -> int:
    return int(row.get("bits_per_second", 0))


def rdma_port_errors(report: ReportView) -> Symptoms:
    """Yield one for each port with a counter at the threshold of ibqueryerrors."""
    _ports(report)
    limits = table("audit/hazards/rdma_thresholds")
    for row in report.fact("network.rdma_errors", []):
        high = [
            f"{name} {row[name]:,} (threshold {least})"
            for name, least in limits.items()
            if isinstance(row.get(name), int) and row[name] >= least
        ]
        if high:
            yield _seen(f"{row['name']}: {', '.join(high)}", row, fact="rdma_errors")


def network_link_slow(report: ReportView) -> Symptoms:
    """Yield one for each link that is half duplex or slower than one of the same card, or of few lanes."""
    if not (rows := report.fact("network.interfaces", [])):
        raise DoesNotApply("no network card is visible")
    is_virtual = report.fact("host.virtualisation", "none") != "none"
    up = [row for row in rows if row.get("state") == "up"]
    for row in up:
        see = partial(_seen, fact="interfaces")
        if row.get("duplex") == "half":
            yield see(f"{row['name']} is half duplex", row)
        best = max(up, key=lambda other: _speed(other) if _has_same(row, other, "pci_id") else 0)
        if "pci_id" in row and 0 < _speed(row) < _speed(best):
            rates = f"{_speed(row) / 1e9:g} Gbit/s, {best['name']} of the same kind at {_speed(best) / 1e9:g}"
            # Two ports may be meant for two networks.
            yield see(f"{row['name']} runs at {rates}", row, best, is_note=True)
        lanes, most = row.get("pcie_width", 0), min(row.get(name, 0) for name in _ENDS)
        if 0 < lanes < most and not is_virtual:
            yield see(f"the PCIe link of {row['name']} has {lanes} lanes; card and slot support {most}", row)


def file_system_read_only(report: ReportView) -> Symptoms:
    """Yield one for each file system that the kernel no longer writes to."""
    for row in report.need("mounts.mounted"):
        if row.get("read_only_after_error"):
            yield Symptom(
                f"{row['at']} ({row['type']}) was mounted for writing, and the kernel made it read-only",
                evidence={"mounts.mounted": [row]},
            )


def nfs_soft_mount(report: ReportView) -> Symptoms:
    """Yield one for each writable mount of NFS that gives up."""
    for row in report.need("mounts.mounted"):
        options = str(row.get("options", "")).split(",")
        if row.get("type") in ("nfs", "nfs4") and "soft" in options and "ro" not in options:
            yield Symptom(
                f"{row['at']} is mounted with soft, and writable", evidence={"mounts.mounted": [row]}
            )


def slurm_node_differs(report: ReportView) -> Symptoms:
    """Yield one for each thing that Slurm expects and the node lacks."""
    if not report.fact("slurm.configuration"):
        raise DoesNotApply("the machine has no slurm.conf")
    yield from _gpus(report)
    for row in report.fact("slurm.gres_files", []):
        if missing := row.get("missing"):
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            message = f"gres.conf names {missing[0]}{more} for {row['name']}, which does not exist"
            yield Symptom(message, evidence={"slurm.gres_files": [row]})
    node, memory = report.fact("slurm.node", {}), report.fact("memory.total_bytes")
    for name, has, unit in (
        ("RealMemory", memory >> 20 if memory else None, "MiB of memory"),
        ("CPUs", report.fact("limits.online_cpus"), "CPUs"),
    ):
        promised = whole_number(node.get(name, ""))
        if promised and has and promised > has:
            message = f"slurm.conf promises {promised:,} {unit}; the node has {has:,}"
            yield Symptom(message, evidence={"slurm.node": node})


def _gpus(report: ReportView) -> Iterator[Symptom]:
    """Yield one where the number of whole GPUs is another than Gres has."""
    rows = [row for row in report.fact("slurm.gres_configured", []) if row.get("name") == "gpu"]
    seen = {
        name: count
        for name in ("nvidia.pci_gpu_count", "rocm.gpu_count", "xpu.gpu_count")
        if isinstance(count := report.fact(name), int)
    }
    has_parts = report.fact("nvidia.mig_instances") or any(
        gpu.kind == "mig" or gpu.facts.get("mig") for gpu in report.devices("nvidia")
    )
    configured = sum(row.get("count", 0) for row in rows)
    if rows and not has_parts and configured != sum(seen.values()):
        is_more = configured > sum(seen.values())
        yield Symptom(
            f"slurm.conf has Gres for {configured} GPUs; the node has {sum(seen.values())}",
            hint="" if is_more else "Slurm never gives out the others",
            evidence={"slurm.gres_configured": rows, **seen},
            severity=None if is_more else Severity.NOTE,
        )
