"""NCCL is configured not to use P2P, shared memory or RDMA."""

from contextlib import suppress

from mlbackends.audit import catalogue
from mlbackends.audit.environment import integer, is_number, setting, settings
from mlbackends.audit.gpus import is_consumer_card
from mlbackends.audit.hazard import DoesNotApply, NotReported, ReportView, Severity, Symptom, Symptoms


def _is_one(value: str) -> bool:
    return integer(value) == 1


_P2P = {
    "NCCL_P2P_DISABLE": (_is_one, "GPUs do not read each other's memory over NVLink or PCI"),
    "NCCL_P2P_LEVEL": (
        lambda value: value == "LOC" or (value[:1].isdecimal() and integer(value) == 0),
        "GPUs do not read each other's memory over NVLink or PCI",
    ),
}
#: Paths between GPUs over which NCCL copies from one to the other on any machine: they share a PCIe switch.
_NEAR = ("same-board", "one-switch", "several-switches")
_SHARED_MEMORY = {"NCCL_SHM_DISABLE": (_is_one, "processes on this machine communicate over the network")}
_OVER_TCP = "nodes communicate over TCP sockets instead of this machine's RDMA device"
_BETWEEN_NODES = {
    "NCCL_IB_DISABLE": (is_number, _OVER_TCP),
    "NCCL_NET": (lambda value: value.lower() == "socket", _OVER_TCP),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each way that is there and not taken."""
    gpus = report.fact("nvidia.pci_gpu_count", 0) or report.fact("nvidia.gpu_count", 0)
    gpus = max(gpus, report.fact("rocm.gpu_count", 0))  # RCCL reads NCCL's variables
    cards = [gpu for gpu in report.devices("nvidia") if gpu.kind == "cuda"]
    has_pcie = not (cards and all(map(is_consumer_card, cards)))
    is_amd_pair = gpus == 2 and report.fact("cpu.vendor") == "AMD"
    copies = [
        "nvlinks" in pair or (has_pcie and (is_amd_pair or pair.get("path", _NEAR[0]) in _NEAR))
        for pair in report.fact("nvidia.topology", [])
    ] or [has_pcie]
    table = dict(_P2P) if gpus > 1 and any(copies) else {}
    layers = report.fact("host.rdma_link_layers")
    if report.fact("host.rdma_devices", []):
        table |= _BETWEEN_NODES
    if layers == ["Unknown"]:  # EFA, which NCCL reaches by a plugin
        table.pop("NCCL_IB_DISABLE", None)
    is_redirected = False
    with suppress(DoesNotApply, NotReported):
        is_redirected = any(True for _ in catalogue.load("pcie-access-control").symptoms(report))
    variables = settings(report)
    rows = {row["name"]: row for row in report.fact("nccl.configuration", [])}
    has_found = False
    for name, (has_effect, effect) in (table | _SHARED_MEMORY if gpus > 1 else table).items():
        if name in _SHARED_MEMORY and all(copies) and not has_found:
            continue
        row = {} if name in variables else rows.get(name, {})
        value, file = variables.get(name) or row.get("value", ""), row.get("file", "")
        if value and has_effect(value):
            has_found = has_found or name in _P2P
            hint = f"remove its line from {file}" if file else ""
            if is_needed := is_redirected and name in _P2P:
                hint = "first do what pcie-access-control advises: until then P2P is slow, or hangs"
            yield Symptom(
                f"{setting(name, value)}{f' in {file}' if file else ''}: {effect}",
                hint=hint,
                command="" if file or is_needed else f"unset {name}",
                evidence={"nccl.configuration": [row]} if file else {f"environment.variables.{name}": value},
                severity=Severity.NOTE if layers == ["Ethernet"] and name in _BETWEEN_NODES else None,
            )
