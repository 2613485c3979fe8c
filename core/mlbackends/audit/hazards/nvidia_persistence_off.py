"""The driver unloads the state of a GPU whenever no program uses it."""

from typing import TYPE_CHECKING

from mlbackends.audit.gpus import container, described_gpus, numbers
from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import FactValue


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
