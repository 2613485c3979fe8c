"""The driver unloads the state of a GPU whenever no program uses it.

Found by:  NVML's persistence mode of a GPU without a display, outside containers.
No alarm:  a GPU with a display, which keeps the driver initialised; WSL; a container, where the host
           decides.
"""

from typing import TYPE_CHECKING

from mlbackends.audit.gpus import container, described_gpus, numbers
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import FactValue

SEVERITY = Severity.NOTE
PROBLEM = Problem.NODE
READS = ("nvidia", "host")
WHY = (
    "Each first program waits seconds for the GPU to initialise, up to half a minute on machines with "
    "eight; settings such as clocks and power limits are lost."
)
FIX = (
    "Switch it on; to make it permanent, run nvidia-persistenced without --no-persistence-mode, which "
    "Ubuntu's service passes: that unit cannot be enabled, udev starts it."
)
SOURCES = (
    "https://docs.nvidia.com/deploy/driver-persistence/ (Overview, Data Persistence)",
    "canonical/nvidia-graphics-drivers#34 (Ubuntu's unit: udev starts it)",
    "Azure/aks-gpu#105",
    "NVIDIA/nvidia-docker#723",
    "NVIDIA/nvidia-container-toolkit#202",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for all GPUs whose persistence mode is off."""
    gpus = described_gpus(report)
    if kind := container(report):
        raise DoesNotApply(f"in a container ({kind}) the host decides")
    if report.fact("nvidia.wsl"):
        raise DoesNotApply("on WSL the driver belongs to Windows")
    loose = [
        gpu
        for gpu in gpus
        if gpu.facts.get("persistence_mode") is False and not gpu.volatile.get("display_active")
    ]
    if loose:
        evidence: dict[str, FactValue] = {
            f"nvidia.devices.{gpu.index}.persistence_mode": False for gpu in loose
        }
        evidence["nvidia.persistence_daemon"] = bool(report.fact("nvidia.persistence_daemon"))
        yield Symptom(
            f"persistence mode is off for {numbers(loose)}",
            hint="until the next reboot",
            command="sudo nvidia-smi -pm 1",
            evidence=evidence,
        )
