"""The loaded NVIDIA kernel module does not support a GPU of this machine."""

from mlbackends.audit.gpus import called, numbers, nvidia_gpus, refused_by_module
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.model.records import Device, Presence


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for the GPUs that the module cannot drive for the same reason."""
    kind = str(report.fact("nvidia.kernel_module", ""))
    release = str(report.fact("nvidia.driver_release", ""))
    refused: dict[tuple[str, str], list[Device]] = {}
    for gpu in nvidia_gpus(report):
        if gpu.presence is Presence.FOUND:
            refused.setdefault(refused_by_module(report, gpu), []).append(gpu)
    refused.pop(("", ""), None)
    for (why, hint), gpus in refused.items():
        which = f"{called(gpus[0])} is" if len(gpus) == 1 else f"{numbers(gpus)} are"
        ids = {f"nvidia.devices.{gpu.index}.pci_id": str(gpu.facts["pci_id"]) for gpu in gpus}
        yield Symptom(
            f"{which} {why}; the loaded one is {kind or 'nvidia'} {release}".rstrip(),
            hint=hint,
            evidence={"nvidia.kernel_module": kind, "nvidia.driver_release": release, **ids},
        )
