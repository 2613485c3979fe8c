"""Ways between GPUs or nodes are switched off for NCCL.

Found by:  environment: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_SHM_DISABLE where there are several
           GPUs, NCCL_IB_DISABLE where host tells of an RDMA device.
No alarm:  P2P and shared memory with one GPU, InfiniBand without a device: nothing is lost there.
"""

from mlbackends.audit.environment import effects, is_on
from mlbackends.audit.hazard import ReportView, Severity, Symptoms

SEVERITY = Severity.WARNING
READS = ("environment", "nvidia", "host")
WHY = (
    "They are set while a hang is looked into and stay. Data then goes through the processor's memory or"
    " over TCP, which takes several times as long."
)
MEND = "Unset it; where the hang comes back, look for its cause, such as access control on PCI bridges."
SOURCES = ("NVIDIA/nccl#2079", "NCCL documentation, environment variables")


def _is_none(value: str) -> bool:
    return value.upper() in ("LOC", "0")


_BETWEEN_GPUS = {
    "NCCL_P2P_DISABLE": (is_on, "GPUs do not read each other's memory over NVLink or PCI"),
    "NCCL_P2P_LEVEL": (_is_none, "GPUs do not read each other's memory over NVLink or PCI"),
    "NCCL_SHM_DISABLE": (is_on, "processes on this machine talk over the network"),
}
_BETWEEN_NODES = {
    "NCCL_IB_DISABLE": (is_on, "nodes talk over TCP sockets, not over the RDMA device that is here")
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each way that is there and not taken."""
    gpus = report.fact("nvidia.pci_gpu_count", 0) or report.fact("nvidia.gpu_count", 0)
    if gpus > 1:
        yield from effects(report, _BETWEEN_GPUS)
    if report.fact("host.rdma_devices", []):
        yield from effects(report, _BETWEEN_NODES)
