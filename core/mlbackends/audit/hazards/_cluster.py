"""Hazards of nodes in clusters: mounts, network cards, InfiniBand and RoCE, and what Slurm expects."""

from collections.abc import Iterator
from typing import Any

from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms
from mlbackends.base.quantities import whole_number
from mlbackends.base.tables import table

_Row = dict[str, Any]


def _ports(report: ReportView) -> list[_Row]:
    if not (ports := report.fact("network.rdma_ports", [])):
        raise DoesNotApply("the machine has no RDMA device")
    return list(ports)


def _evidence(fact: str, *rows: _Row) -> dict[str, Any]:
    return {f"network.{fact}": list(rows)}


def _number(port: _Row) -> str:
    return str(port.get("name", "")).rpartition("/")[2]


def rdma_port_down(report: ReportView) -> Symptoms:
    """Yield one for each port that is not active; a note if no such port of another card is."""
    ports = _ports(report)
    for port in ports:
        state, physical = port.get("state"), port.get("physical_state")
        if state in (None, "ACTIVE"):
            continue
        if state == "INIT" and port.get("link_layer") == "InfiniBand":
            yield Symptom(
                f"{port['name']} has a link, and no subnet manager has configured it",
                hint="start a subnet manager (opensm) on one node or switch of the fabric",
                evidence=_evidence("rdma_ports", port),
            )
            continue
        others = [
            other
            for other in ports
            if other.get("state") == "ACTIVE"
            and all(other.get(key) == port.get(key) for key in ("board", "card", "link_layer"))
            and _number(other) == _number(port)
        ]
        yield Symptom(
            f"{port['name']} is {state}"
            + (f" ({physical})" if physical else "")
            + (f"; {others[0]['name']}, of a card of the same kind, is ACTIVE" if others else ""),
            evidence=_evidence("rdma_ports", port, *others[:1]),
            severity=None if others else Severity.NOTE,
        )


def rdma_port_slow(report: ReportView) -> Symptoms:
    """Yield one for each active port that is slower than one of the same board, or has a single lane."""
    active = [port for port in _ports(report) if port.get("state") == "ACTIVE" and "bits_per_second" in port]
    for port in active:
        alike = [
            other
            for other in active
            if all(other.get(key) == port.get(key) for key in ("board", "card", "link_layer"))
        ]
        best = max(alike, key=lambda other: int(other["bits_per_second"]))
        if port["bits_per_second"] < best["bits_per_second"]:
            yield Symptom(
                f"{port['name']} runs at {port['bits_per_second'] / 1e9:g} Gbit/s, {best['name']} of the same"
                f" kind at {best['bits_per_second'] / 1e9:g}",
                evidence=_evidence("rdma_ports", port, best),
            )
        elif port.get("lanes") == 1 and port.get("link_layer") == "InfiniBand":
            yield Symptom(
                f"{port['name']} uses one lane, at {port['bits_per_second'] / 1e9:g} Gbit/s",
                evidence=_evidence("rdma_ports", port),
            )


def rdma_port_errors(report: ReportView) -> Symptoms:
    """Yield one for each port with a counter at the threshold of ibqueryerrors."""
    _ports(report)
    limits = table("audit/hazards/rdma_thresholds")
    for row in report.fact("network.rdma_errors", []):
        high = {
            name: count
            for name, count in row.items()
            if name in limits and isinstance(count, int) and count >= limits[name]
        }
        if high:
            counts = ", ".join(f"{name} {count:,} (threshold {limits[name]})" for name, count in high.items())
            yield Symptom(f"{row['name']}: {counts}", evidence=_evidence("rdma_errors", row))


def network_link_slow(report: ReportView) -> Symptoms:
    """Yield one for each link that is half duplex or slower than one of the same card, or of few lanes."""
    if not (rows := report.fact("network.interfaces", [])):
        raise DoesNotApply("no network card is visible")
    is_virtual = report.fact("host.virtualisation", "none") != "none"
    up = [row for row in rows if row.get("state") == "up"]
    for row in up:
        if row.get("duplex") == "half":
            yield Symptom(f"{row['name']} is half duplex", evidence=_evidence("interfaces", row))
        speed = row.get("bits_per_second")
        alike = [other for other in up if "pci_id" in row and other.get("pci_id") == row["pci_id"]]
        best = max((other.get("bits_per_second", 0) for other in alike), default=0)
        if speed and speed < best:
            yield Symptom(
                f"{row['name']} runs at {speed / 1e9:g} Gbit/s, another port of the same kind at"
                f" {best / 1e9:g}",
                evidence=_evidence("interfaces", row),
                severity=Severity.NOTE,  # two ports may be meant for two networks
            )
        lanes, ends = row.get("pcie_width"), (row.get("max_pcie_width"), row.get("max_pcie_slot_width"))
        if lanes and not is_virtual and all(ends) and lanes < min(filter(None, ends)):
            yield Symptom(
                f"the PCIe link of {row['name']} has {lanes} lanes; card and slot support"
                f" {min(filter(None, ends))}",
                evidence=_evidence("interfaces", row),
            )


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
            yield Symptom(
                f"gres.conf names {missing[0]}"
                + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
                + f" for {row['name']}, which does not exist",
                evidence={"slurm.gres_files": [row]},
            )
    node = report.fact("slurm.node", {})
    memory, cpus = whole_number(node.get("RealMemory", "")), whole_number(node.get("CPUs", ""))
    total, online = report.fact("memory.total_bytes"), report.fact("limits.online_cpus")
    if memory and total and memory > total >> 20:
        yield Symptom(
            f"slurm.conf promises {memory:,} MiB of memory; the node has {total >> 20:,}",
            evidence={"slurm.node": node, "memory.total_bytes": total},
        )
    if cpus and online and cpus > online:
        yield Symptom(
            f"slurm.conf promises {cpus} CPUs; the node has {online}",
            evidence={"slurm.node": node, "limits.online_cpus": online},
        )


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
