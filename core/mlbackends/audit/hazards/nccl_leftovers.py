"""Ways between GPUs or nodes are switched off for NCCL.

Found by:  environment, and nccl for what nccl.conf sets: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL,
           NCCL_SHM_DISABLE where there are several GPUs, NCCL_IB_DISABLE where host tells of an RDMA
           device; numbers as NCCL reads them, with strtoll.
No alarm:  P2P and shared memory with one GPU, InfiniBand without a device: nothing is lost there; words
           such as "true", which NCCL reads as 0; what a file sets and the environment sets otherwise.
"""

from mlbackends.audit.environment import Effect, integer, is_number, settings
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
READS = ("environment", "nvidia", "host")
WHY = (
    "They are set while a hang is looked into and stay. Data then goes through the processor's memory or"
    " over TCP, which takes several times as long."
)
MEND = "Unset it; where the hang comes back, look for its cause, such as access control on PCI bridges."
SOURCES = (
    "NVIDIA/nccl#2079",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    "NVIDIA/nccl, src/misc/param.cc; src/graph/paths.cc, ncclGetLevel; src/transport/shm.cc and net_ib",
)


def _is_one(value: str) -> bool:
    return integer(value) == 1


def _is_none(value: str) -> bool:
    return value == "LOC" or (value[:1].isdecimal() and integer(value) == 0)


_BETWEEN_GPUS = {
    "NCCL_P2P_DISABLE": (_is_one, "GPUs do not read each other's memory over NVLink or PCI"),
    "NCCL_P2P_LEVEL": (_is_none, "GPUs do not read each other's memory over NVLink or PCI"),
    "NCCL_SHM_DISABLE": (_is_one, "processes on this machine talk over the network"),
}
_BETWEEN_NODES = {
    "NCCL_IB_DISABLE": (
        is_number,
        "nodes talk over TCP sockets, not over the RDMA device that is here",
    )
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each way that is there and not taken."""
    gpus = report.fact("nvidia.pci_gpu_count", 0) or report.fact("nvidia.gpu_count", 0)
    gpus = max(gpus, report.fact("rocm.gpu_count", 0))  # RCCL reads NCCL's variables
    table: dict[str, Effect] = dict(_BETWEEN_GPUS) if gpus > 1 else {}
    if report.fact("host.rdma_devices", []):
        table |= _BETWEEN_NODES
    variables = settings(report)
    rows = [(name, value, "") for name, value in variables.items()]
    rows += [
        (row["name"], row["value"], row["file"])
        for row in report.fact("nccl.configuration", [])
        if row["name"] not in variables
    ]
    for name, value, file in rows:
        has_effect, effect = table.get(name, (bool, ""))
        if effect and has_effect(value):
            where = f"nccl.configuration.{file}" if file else f"environment.variables.{name}"
            yield Symptom(
                f"{name} is {value[:80]!r}{f' in {file}' if file else ''}: {effect}",
                hint=f"take its line out of {file}" if file else "",
                command="" if file else f"unset {name}",
                evidence={where: f"{name}={value}" if file else value},
            )
