"""A GPU of NVIDIA is on the bus, and NVIDIA's driver does not drive it.

Found by:  the PCI bus, and which kernel driver is bound to each GPU.
No alarm:  a GPU that is held for a virtual machine (vfio-pci); a container, which need not be given
           the GPUs that the bus shows; a desktop where nothing of CUDA is installed.
"""

from mlbackends.audit.gpus import container, nvidia_gpus, refused_by_module
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia", "host")
WHY = "CUDA does not work on it: programs compute on the processor, many times slower."
FIX = "Install NVIDIA's driver from the distribution; it keeps nouveau away, after a reboot."
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
        raise DoesNotApply(f"in a container ({kind}) the driver is the host's")
    wanting = [name for name in _USERS if report.libraries(name)]
    if not wanting and not report.fact("torch.cuda_version"):
        raise DoesNotApply("nothing of CUDA is installed here")
    for gpu in gpus:
        if refused_by_module(report, gpu)[0]:  # another hazard tells of it
            continue
        for reason in gpu.reasons:
            if reason.code in _CODES:
                yield Symptom(
                    f"{reason.message}; installed here is {', '.join(wanting) or 'torch'}",
                    hint=reason.hint,
                    evidence={
                        f"nvidia.devices.{gpu.index}.{name}": gpu.facts[name]
                        for name in ("pci_id", "kernel_driver")
                        if name in gpu.facts
                    },
                )
