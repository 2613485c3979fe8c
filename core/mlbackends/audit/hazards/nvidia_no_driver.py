"""NVIDIA's driver does not control an NVIDIA GPU of this machine."""

from mlbackends.audit.gpus import container, nvidia_gpus, refused_by_module
from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptom, Symptoms

_CODES = ("nouveau-bound", "no-driver")
_USERS = ("cuda_driver", "cuda_runtime", "cuda_toolkit", "cudnn", "cublas", "cupy")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for the GPUs without their driver, where something here would use them."""
    gpus = nvidia_gpus(report)
    if kind := container(report):
        raise DoesNotApply(f"in a container ({kind}) the driver belongs to the host")
    wanting = [
        name
        for name in _USERS
        if any("dangling-link" not in (why.code for why in copy.reasons) for copy in report.libraries(name))
    ]
    if not wanting and not report.fact("torch.cuda_version"):
        raise DoesNotApply("no CUDA software is installed")
    # What the loaded module cannot drive is another hazard.
    driven = [gpu for gpu in gpus if not refused_by_module(report, gpu)[0]]
    for code in _CODES:
        found = [(gpu, reason) for gpu in driven for reason in gpu.reasons if reason.code == code]
        if not found:
            continue
        reason = found[0][1]
        message, hint = reason.message, reason.hint
        if others := len(found) - 1:
            message += f"; so {'is' if others == 1 else 'are'} {others} more"
        message += f"; it would be used by {', '.join(wanting) or 'torch'}"
        if code == "no-driver" and report.fact("host.secure_boot") and report.libraries("nvidia"):
            message += "; the driver is installed, and Secure Boot refuses modules of unknown keys"
            hint = "enrol the key that signs the module (mokutil --import), then reboot"
        names = ("pci_id", "kernel_driver")
        evidence = {
            f"nvidia.devices.{gpu.index}.{name}": gpu.facts[name]
            for gpu, _ in found
            for name in names
            if name in gpu.facts
        }
        yield Symptom(message, hint=hint, evidence=evidence)
