"""NVIDIA's driver does not control an NVIDIA GPU of this machine.

Found by:  the PCI bus, and the kernel driver that is bound to each GPU.
No alarm:  a GPU that is reserved for a virtual machine (vfio-pci); a container, which may not have all GPUs
           that the bus shows; a desktop without any CUDA software.
"""

from mlbackends.audit.gpus import container, nvidia_gpus, refused_by_module
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia", "host")
WHY = "CUDA cannot use it: programs compute on the CPU, many times slower."
FIX = "Install NVIDIA's driver from the distribution; it disables nouveau after a reboot."
SOURCES = (
    "Azure/azhpc-diagnostics#44",
    "canonical/hardware-observer-operator#359",
    "Debian, nvidia-kernel-support (nvidia-blacklists-nouveau.conf)",
)
_CODES = ("nouveau-bound", "no-driver")
_USERS = ("cuda_driver", "cuda_runtime", "cuda_toolkit", "cudnn", "cublas", "cupy")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU without its driver, where something here would use it."""
    gpus = nvidia_gpus(report)
    if kind := container(report):
        raise DoesNotApply(f"in a container ({kind}) the driver belongs to the host")
    wanting = [name for name in _USERS if report.libraries(name)]
    if not wanting and not report.fact("torch.cuda_version"):
        raise DoesNotApply("no CUDA software is installed")
    for gpu in gpus:
        if refused_by_module(report, gpu)[0]:  # another hazard reports it
            continue
        for reason in gpu.reasons:
            if reason.code in _CODES:
                yield Symptom(
                    f"{reason.message}; it would be used by {', '.join(wanting) or 'torch'}",
                    hint=reason.hint,
                    evidence={
                        f"nvidia.devices.{gpu.index}.{name}": gpu.facts[name]
                        for name in ("pci_id", "kernel_driver")
                        if name in gpu.facts
                    },
                )
