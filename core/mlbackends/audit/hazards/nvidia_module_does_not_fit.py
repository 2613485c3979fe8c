"""The loaded NVIDIA kernel module does not support a GPU of this machine."""

from mlbackends.audit.gpus import called, nvidia_gpus, refused_by_module
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.model.records import Presence


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for the GPUs that the module cannot drive for the same reason."""
    kind = str(report.fact("nvidia.kernel_module", ""))
    release = str(report.fact("nvidia.driver_release", ""))
    for gpu in nvidia_gpus(report):
        why, hint = refused_by_module(report, gpu)
        if why and gpu.presence is Presence.FOUND:
            module = f"{kind or 'nvidia'} module {release}".rstrip()
            yield Symptom(
                f"the loaded {module} does not support {called(gpu)}: it is {why}",
                hint=hint,
                evidence={
                    "nvidia.kernel_module": kind,
                    "nvidia.driver_release": release,
                    f"nvidia.devices.{gpu.index}.pci_id": str(gpu.facts["pci_id"]),
                },
            )
