"""ECC or MIG of a GPU is set to one thing and still is the other.

Found by:  NVML's current and pending modes.
"""

from mlbackends.audit.gpus import described_gpus
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = "The machine is not in the state that somebody set, and changes by itself at the next reset or reboot."
MEND = "For MIG drain and reset the GPU (nvidia-smi --gpu-reset); a change of ECC takes a reboot."
SOURCES = (
    "https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetEccMode and nvmlDeviceGetMigMode)",
)
WARNINGS = (("nvidia", "mode-change-pending"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each mode that waits."""
    modes = {
        f"nvidia.devices.{gpu.index}.{mode}_pending": gpu.facts[f"{mode}_pending"]
        for gpu in described_gpus(report)
        for mode in ("ecc", "mig")
        if gpu.facts.get(mode) != gpu.facts.get(f"{mode}_pending")
    }
    for warning in report.warnings("nvidia", "mode-change-pending"):
        yield from_warning(warning, evidence=modes)
