"""The loaded NVIDIA kernel module does not support a GPU of this machine.

Found by:  the kind and release of the module, and the GPU's PCI number. The open module needs Turing or
           newer, Grace Hopper, Blackwell and newer need the open one, and 590 dropped GPUs before Turing.
No alarm:  a GPU that NVML describes; one that another driver uses.
"""

from mlbackends.audit.gpus import called, numbers, nvidia_gpus, refused_by_module
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.model.records import Device, Presence

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = (
    "The module loads but does not initialise the GPU (RmInitAdapter failed in the kernel log), so NVML "
    "and CUDA do not see it."
)
FIX = "Install the other kind of kernel module, or the driver branch that still supports the GPU."
SOURCES = (
    "NVIDIA/open-gpu-kernel-modules, README: compatible GPUs",
    "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (kernel modules)",
    'the kernel log of 580 on Blackwell: "requires use of the NVIDIA open kernel modules"',
    "https://wiki.nixos.org/wiki/NVIDIA (Maxwell to Volta: the legacy branch 580)",
    "NVIDIA driver README, Open Linux Kernel Modules (Grace Hopper and Blackwell need them)",
)


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
