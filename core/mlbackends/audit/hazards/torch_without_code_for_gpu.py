"""The installed torch has no machine code for a GPU that is here.

Told by:   each GPU's compute capability (nvidia), held to what torch's wheels of that release and CUDA
           are compiled for, and to what CUDA's compiler of that release can make.
No alarm:  code of the same major and a lower minor number runs; of a build that is no wheel of PyTorch's
           only what CUDA's compiler has dropped is known.
"""

from collections.abc import Iterator

from mlbackends.audit.gpus import runs_on, targets
from mlbackends.audit.hazard import DoesNotApply, NotReported, ReportView, Severity, Symptom

SEVERITY = Severity.ERROR
READS = ("torch", "nvidia")
WHY = 'Every kernel ends with "no kernel image is available for execution on the device".'
MEND = "Install the build for another CUDA: +cu126 reaches back to Maxwell, +cu128 and newer have Blackwell."
SOURCES = (
    "pytorch/pytorch#150733",
    "pytorch/pytorch#164471, PyTorch CUDA support matrix",
    "pytorch/pytorch#182849",
    "CUDA Toolkit release notes, deprecated architectures",
)


def symptoms(report: ReportView) -> Iterator[Symptom]:
    """Yield one for each kind of GPU that no code is for."""
    version, cuda = report.version("torch"), report.fact("torch.cuda_version", "")
    gpus = [one for one in report.devices("nvidia") if one.kind == "cuda"]
    if not cuda or not gpus:
        raise DoesNotApply("there is no torch for CUDA beside an NVIDIA GPU")
    is_arm = report.fact("host.machine", "") == "aarch64"
    copies = [one for one in report.libraries("torch") if one.found_by == "site-packages"]
    is_wheel = any(one.owner.startswith("torch ") for one in copies)
    codes = targets(version, cuda, is_arm, is_wheel)
    if codes is None:
        raise NotReported(f"it is not known what torch {version} for CUDA {cuda} is compiled for")
    told = [one for one in gpus if one.capability]
    kinds = {one.capability: one for one in told}
    for capability, gpu in kinds.items():
        if not runs_on(capability, codes):
            yield Symptom(
                f"torch {version}, built for CUDA {cuda}, is compiled for"
                f" {', '.join(codes.listed)}; GPU {gpu.index} ({gpu.name}) is {capability}",
                hint=_hint(capability),
                evidence={"torch.cuda_version": cuda, f"nvidia.{gpu.index}.capability": capability},
            )
    if not told:
        raise NotReported("no GPU tells its compute capability")


def _hint(capability: str) -> str:
    major = int(capability.partition(".")[0])
    if major >= 10:
        return "install torch 2.7 or newer for CUDA 12.8 or newer (+cu128, +cu130)"
    return "install the torch for CUDA 12.6 (+cu126), up to release 2.14"
