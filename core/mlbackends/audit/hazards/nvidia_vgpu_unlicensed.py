"""A vGPU has no licence, and is slowed down after some minutes.

Found by:  NVML's licensable features of a GPU whose virtualisation is vgpu.
No alarm:  a GPU that is passed through; a vGPU in its first minutes is reported, for it may not get one.
"""

from mlbackends.audit.gpus import called, described_gpus
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = (
    "About 20 minutes after the start of the virtual machine allocations take many times longer, and in"
    " the end CUDA says that the device is busy or unavailable (46)."
)
MEND = (
    "Put the token of the licence server into /etc/nvidia/ClientConfigToken, see FeatureType in"
    " /etc/nvidia/gridd.conf, and restart nvidia-gridd; it writes to the system's log."
)
SOURCES = (
    "https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/",
    "NVIDIA/cudf#10507 (seconds become minutes after 20)",
    "NVIDIA/gpu-operator#220",
    "Azure/AKS#4870 (46)",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each vGPU without a licence."""
    vgpus = [gpu for gpu in described_gpus(report) if gpu.facts.get("virtualisation") == "vgpu"]
    if not vgpus:
        raise DoesNotApply("no GPU here is a vGPU")
    for gpu in vgpus:
        if gpu.facts.get("licensed") is False:
            yield Symptom(
                f"{called(gpu)} is a vGPU without a licence",
                command="nvidia-smi -q | grep -A2 Licensed",
                evidence={f"nvidia.devices.{gpu.index}.licensed": False},
            )
