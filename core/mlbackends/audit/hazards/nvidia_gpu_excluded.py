"""A GPU is excluded by a setting of the driver.

Found by:  "GPU Excluded" in /proc/driver/nvidia, which NVreg_ExcludedGpus sets.
"""

from mlbackends.audit.gpus import called, nvidia_gpus
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = "Neither nvidia-smi nor CUDA shows it, so it looks lost; somebody took it out of use."
MEND = "If it is sound again, take it out of NVreg_ExcludedGpus in /etc/modprobe.d, and reboot."
SOURCES = ("NVIDIA driver README, NVreg_ExcludedGpus",)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each excluded GPU."""
    for gpu in nvidia_gpus(report):
        if gpu.facts.get("excluded"):
            yield Symptom(
                f"{called(gpu)} is excluded by the driver's settings",
                command="grep -rn ExcludedGpus /etc/modprobe.d",
                evidence={f"nvidia.devices.{gpu.index}.excluded": True},
            )
