"""The GPUs of a report as hazards read them: which are there, which answer, and what runs around them."""

from collections.abc import Iterable
from typing import NamedTuple

from mlbackends.audit.hazard import DoesNotApply, NotReported, ReportView
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Device, Presence

_NOT_ASKED = "NVML was not asked, or described no GPU (it needs --depth usable)"
_FIRST_TURING, _FIRST_BLACKWELL = 0x1E00, 0x2900
"""PCI numbers of NVIDIA's devices rise with the generation."""
_WITHOUT_PASCAL = 590


def nvidia_gpus(report: ReportView) -> tuple[Device, ...]:
    """Return the NVIDIA GPUs, whether they answer or not.

    Raises DoesNotApply where none is there, NotReported where no file tells which they are.
    """
    gpus = tuple(device for device in report.devices("nvidia") if device.kind == "cuda")
    nodes = report.fact("nvidia.device_nodes", [])
    if gpus:
        return gpus
    if report.fact("nvidia.wsl") or any(is_gpu_node(node) for node in nodes):
        raise NotReported(_NOT_ASKED)
    raise DoesNotApply("there is no NVIDIA GPU here")


def answering(report: ReportView) -> tuple[Device, ...]:
    """Return the NVIDIA GPUs that NVML described.

    Raises DoesNotApply where there is no GPU, NotReported where NVML was not asked or described none.
    """
    gpus = nvidia_gpus(report)
    if not any(map(is_driven, gpus)):
        raise DoesNotApply("no GPU here is driven by NVIDIA's driver")
    told = tuple(gpu for gpu in gpus if gpu.presence is not Presence.FOUND)
    if not told:
        raise NotReported(_NOT_ASKED)
    return told


def is_driven(gpu: Device) -> bool:
    """Tell whether NVIDIA's driver has a GPU: NVML describes it, or the kernel says so."""
    return gpu.presence is not Presence.FOUND or gpu.facts.get("kernel_driver") == "nvidia"


def is_gpu_node(node: str) -> bool:
    """Tell whether a device node is that of a GPU: /dev/nvidia0."""
    return node.removeprefix("/dev/nvidia").isdecimal()


def refused_by_module(report: ReportView, gpu: Device) -> tuple[str, str]:
    """Return why the loaded kernel module cannot drive a GPU, and what to install; ("", "") if it can."""
    kind = str(report.fact("nvidia.kernel_module", ""))
    branch = str(report.fact("nvidia.driver_release", "")).partition(".")[0]
    vendor, _, device = str(gpu.facts.get("pci_id", "")).partition(":")
    number = int(device, 16) if vendor == "10de" and _is_hexadecimal(device) else None
    if number is None or gpu.facts.get("kernel_driver", "nvidia") != "nvidia":
        return "", ""
    if number < _FIRST_TURING and kind == "open":
        said = "is older than Turing and needs the proprietary kernel module"
        return said, "install the driver with its proprietary kernel module"
    if number < _FIRST_TURING and branch.isdecimal() and int(branch) >= _WITHOUT_PASCAL:
        said = "is older than Turing, which drivers have left out since 590"
        return said, "install a driver of the 580 branch"
    if number >= _FIRST_BLACKWELL and kind == "proprietary":
        said = "is of Blackwell or newer and needs the open kernel module"
        return said, "install the driver with its open kernel module (nvidia-open)"
    return "", ""


def amd_gpus(report: ReportView) -> tuple[Device, ...]:
    """Return the AMD GPUs on this machine. Raises DoesNotApply where none is there."""
    gpus = tuple(device for device in report.devices("rocm") if device.kind == "rocm")
    if not gpus:
        raise DoesNotApply("there is no AMD GPU here")
    return gpus


def called(gpu: Device) -> str:
    """Return what to call a GPU in a sentence: its number, and its name or where it is."""
    about = ", ".join(part for part in (gpu.name, gpu.pci_address) if part)
    return f"GPU {gpu.index} ({about})" if about else f"GPU {gpu.index}"


def numbers(gpus: Iterable[Device]) -> str:
    """Return what to call several GPUs in a sentence: GPU 0, 1, 2."""
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"


def container(report: ReportView) -> str:
    """Return the kind of container that the report was made in, "" for none.

    Raises NotReported where that is not in the report.
    """
    if report.need("host.platform") != "linux":
        return ""
    kind = str(report.need("host.container"))
    return "" if kind == "none" else kind


def see_part_of_machine(report: ReportView) -> str:
    """Return what hides GPUs of this machine from NVML on purpose, "" for nothing."""
    if kind := container(report):
        return f"the container ({kind})"
    if report.fact("nvidia.wsl"):
        return "Windows"
    jobs = ("SLURM_JOB_ID", "SLURM_GPUS_ON_NODE", "SLURM_CPUS_ON_NODE", "SLURM_NTASKS")
    if any(report.variable(name) is not None for name in jobs):
        return "the Slurm job"
    return ""


def _is_hexadecimal(text: str) -> bool:
    return bool(text) and all(sign in "0123456789abcdefABCDEF" for sign in text)


_WHEEL = pattern(r"(\d{1,3})\.(\d{1,3})\.\d{1,3}(?:\+cu\d{2,3})?")
_CAPABILITY = pattern(r"(\d{1,2})\.(\d)")
_RELEASE = pattern(r"(\d{1,2})\.(\d{1,2})")

_OLD = ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0")
_FROM_VOLTA = ("7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
_FROM_TURING = _FROM_VOLTA[1:]
_ARM_OLD = ("8.0", "9.0")
_ARM = ("8.0", "9.0", "10.0", "12.0")
_ARM_THOR = ("8.0", "9.0", "10.0", "11.0", "12.0")

_PTX = "PTX"
"""What a newer GPU than the last can compile for itself."""

_WHEELS = (
    ((2, 8), (2, 14), "12.6", _OLD, _ARM_OLD),
    ((2, 8), (2, 10), "12.8", _FROM_VOLTA, _ARM),
    ((2, 8), (2, 9), "12.9", (*_FROM_VOLTA, _PTX), (*_ARM, _PTX)),
    ((2, 11), (2, 11), "12.8", _FROM_TURING, _ARM),
    ((2, 9), (2, 14), "13.0", (*_FROM_TURING, _PTX), (*_ARM_THOR, _PTX)),
    ((2, 12), (2, 14), "13.2", (*_FROM_TURING, _PTX), (*_ARM_THOR, _PTX)),
)
"""First and last release of torch, CUDA, and the code for x86-64 and for aarch64."""

_ANY = 999
_COMPILERS = (((13, 0), 75, 121), ((12, 8), 50, 121), ((12, 0), 50, 90), ((11, 8), 35, 90))
"""The first CUDA release of a row, and the lowest and highest capability, times ten."""


class Targets(NamedTuple):
    """listed: for people. codes: what is compiled, () where only the bounds are known."""

    listed: tuple[str, ...]
    codes: tuple[str, ...]
    lowest: int
    highest: int


def targets(version: str, cuda: str, is_arm: bool, is_wheel: bool = True) -> Targets | None:
    """Return what a build of torch is compiled for; None where nothing is known of it.

    is_wheel: whether it came as a wheel; of other builds only the compiler's lowest GPU is known.
    """
    wheel, release = _WHEEL.fullmatch(version), _RELEASE.match(cuda)
    if release is None:
        return None
    is_official = is_wheel and wheel is not None
    torch = (int(wheel[1]), int(wheel[2])) if is_official and wheel else (0, 0)
    for first, last, built_for, codes, arm_codes in _WHEELS:
        if first <= torch <= last and f"{release[1]}.{release[2]}" == built_for:
            found = arm_codes if is_arm else codes
            return Targets(found, found, 0, 0)
    for since, lowest, highest in _COMPILERS:
        if (int(release[1]), int(release[2])) >= since and int(release[1]) == since[0]:
            if not is_official:
                return Targets((f"{lowest / 10} and newer at most",), (), lowest, _ANY)
            words = (f"{lowest / 10} to {highest / 10} at most",)
            return Targets(words, (), lowest, highest)
    return None


def runs_on(capability: str, code: Targets) -> bool:
    """Tell whether a GPU runs some of the code; true for a capability that makes no sense."""
    match = _CAPABILITY.fullmatch(capability)
    if match is None:
        return True
    major, minor = int(match[1]), int(match[2])
    if not code.codes:
        return code.lowest <= major * 10 + minor <= code.highest
    listed = [one for one in code.codes if one != _PTX]
    if len(listed) < len(code.codes) and (major, minor) >= tuple(map(int, listed[-1].split("."))):
        return True
    return any(
        int(one.partition(".")[0]) == major and int(one.partition(".")[2]) <= minor
        for one in listed
    )
