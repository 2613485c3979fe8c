"""The loaded kernel module does not drive a GPU that is here: wrong kind, or too new.

Told by:   the kind and release of the module, held to the GPU's PCI number. The open module needs
           Turing or newer, Blackwell and newer need the open one, and 590 dropped what is older than Turing.
No alarm:  a GPU that NVML describes; one that another driver holds.
"""

from collections.abc import Iterator

from mlbackends.audit.gpus import called, nvidia_gpus
from mlbackends.audit.hazard import Symptom
from mlbackends.audit.known import Known
from mlbackends.model.audit import Severity
from mlbackends.model.records import Device, Presence

SEVERITY = Severity.ERROR
READS = ("nvidia",)
WHY = (
    "The module loads and does not initialise the GPU (RmInitAdapter failed in the kernel log), so"
    " NVML and CUDA do not see it."
)
MEND = "Install the other kind of kernel module, or the driver branch that still has the GPU."
SOURCES = (
    "NVIDIA/open-gpu-kernel-modules, README: compatible GPUs",
    "NVIDIA Driver Installation Guide, kernel modules",
    "NVIDIA, support plan for Maxwell, Pascal and Volta: 580 is the last branch",
)
_FIRST_TURING, _FIRST_BLACKWELL = 0x1E00, 0x2900
_WITHOUT_PASCAL = 590


def symptoms(known: Known) -> Iterator[Symptom]:
    """Yield one for each GPU that the module cannot drive."""
    kind = str(known.fact("nvidia.kernel_module", ""))
    release = str(known.fact("nvidia.driver_release", ""))
    for gpu in nvidia_gpus(known):
        said, hint = _refusal(gpu, kind, release)
        if said and gpu.presence is Presence.FOUND:
            yield Symptom(
                f"{called(gpu)} {said}; the loaded one is {kind or 'nvidia'} {release}".rstrip(),
                hint=hint,
                evidence={
                    "nvidia.kernel_module": kind,
                    "nvidia.driver_release": release,
                    f"nvidia.devices.{gpu.index}.pci_id": str(gpu.facts.get("pci_id", "")),
                },
            )


def _refusal(gpu: Device, kind: str, release: str) -> tuple[str, str]:
    number = _pci_device(gpu)
    if number is None or gpu.facts.get("kernel_driver") not in ("nvidia", None):
        return "", ""
    branch = release.partition(".")[0]
    if number < _FIRST_TURING:
        if kind == "open":
            said = "is older than Turing and needs the proprietary kernel module"
            return said, "install the driver with its proprietary kernel module"
        if branch.isdecimal() and int(branch) >= _WITHOUT_PASCAL:
            said = "is older than Turing, which drivers have left out since 590"
            return said, "install a driver of the 580 branch"
    if number >= _FIRST_BLACKWELL and kind == "proprietary":
        said = "is of Blackwell or newer and needs the open kernel module"
        return said, "install the driver with its open kernel module (nvidia-open)"
    return "", ""


def _pci_device(gpu: Device) -> int | None:
    """Return a GPU's number among NVIDIA's PCI devices."""
    vendor, _, device = str(gpu.facts.get("pci_id", "")).partition(":")
    try:
        return int(device, 16) if vendor == "10de" else None
    except ValueError:
        return None
