"""CUDA numbers these different GPUs in another order than nvidia-smi."""

from mlbackends.audit.gpus import is_driven, nvidia_gpus
from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms

_ORDER, _VISIBLE = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the two orders may differ; a warning where an index is used already."""
    models = {
        gpu.pci_address: gpu.name or str(gpu.facts.get("pci_id", ""))
        for gpu in nvidia_gpus(report)
        if is_driven(gpu) and not gpu.facts.get("excluded")
    }
    if len(models) < 2:
        raise DoesNotApply("there are fewer than two GPUs")
    unlike = sorted(set(models.values()) - {""})
    addresses = [gpu.pci_address for gpu in report.devices("cuda_driver") if gpu.pci_address]
    is_bus_order = len(addresses) == len(models) and addresses == sorted(addresses)
    if len(unlike) < 2 or is_bus_order or report.variable(_ORDER) == "PCI_BUS_ID":
        return
    visible = report.variable(_VISIBLE) or ""
    indexed = [entry for entry in visible.split(",") if entry.strip().isdecimal()]
    message = f"the GPUs differ ({', '.join(unlike)}) and {_ORDER} is not PCI_BUS_ID"
    if indexed:
        message += f": {_VISIBLE}={visible} may select other GPUs than the same numbers in nvidia-smi"
    yield Symptom(
        message,
        command=f"export {_ORDER}=PCI_BUS_ID",
        evidence={
            "nvidia.devices.name": unlike,
            f"environment.variables.{_ORDER}": report.variable(_ORDER) or "",
            f"environment.variables.{_VISIBLE}": visible,
        },
        severity=Severity.WARNING if indexed else None,
    )
