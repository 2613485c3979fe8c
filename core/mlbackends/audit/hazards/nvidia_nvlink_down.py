"""A GPU has fewer active NVLinks than others of its model.

Found by:  NVML's state of each link, compared among GPUs of one model.
No alarm:  cards without bridges, whose links are all inactive; GPUs in MIG mode, whose links are off.
"""

from typing import TYPE_CHECKING

from mlbackends.audit.gpus import called, described_gpus
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import Device

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = "Data between GPUs uses fewer links than it could, or PCIe."
FIX = "Look for Xid 74 in the kernel log; drain and reset the GPU, then restart, then have it serviced."
SOURCES = (
    "https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetNvLinkState)",
    "https://docs.nvidia.com/health-validation/reference/checks/nvlink (nvlink_active)",
    "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (74)",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU that has fewer than the best of its model."""
    models: dict[str, list[tuple[int, Device]]] = {}
    for gpu in described_gpus(report):
        up = gpu.facts.get("nvlinks_active")
        if isinstance(up, int) and not gpu.facts.get("mig"):
            models.setdefault(gpu.name, []).append((up, gpu))
    for name, gpus in models.items():
        most = max(up for up, _ in gpus)
        for up, gpu in gpus:
            # Of cards that are joined in pairs, one without a bridge lacks nothing.
            if 0 < up < most or (up == 0 and gpu.facts.get("nvlinks_lead_to_switch")):
                yield Symptom(
                    f"{called(gpu)} has {up} active NVLinks; other {name} have {most}",
                    evidence={
                        f"nvidia.devices.{gpu.index}.nvlinks_active": up,
                        f"nvidia.devices.{gpu.index}.nvlinks": gpu.facts.get("nvlinks", 0),
                    },
                )
