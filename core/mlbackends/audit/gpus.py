"""The GPUs of a report as hazards read them: which are there, which answer, and what runs around them."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from mlbackends.audit.hazard import DoesNotApply, NotReported, ReportView, Symptom
from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import format_cpu_list
from mlbackends.model.records import Device, Presence

_NOT_QUERIED = "NVML was not asked, or described no GPU (it needs --depth usable)"
#: PCI numbers of NVIDIA's devices rise with the generation.
_FIRST_TURING, _FIRST_BLACKWELL = 0x1E00, 0x2900
#: The GPUs of Grace Hopper, which need the open module like Blackwell: GH200 with HBM3 and HBM3e.
_GRACE_HOPPER = (0x2342, 0x2345, 0x2348)
_WITHOUT_PASCAL = 590
#: A GPU in a message, as `called` writes it, and in a command of nvidia-smi.
_CALLED = pattern(r"GPU (\d{1,4}) \([^()]*\)")
_CHOSEN = pattern(r" -i \d+ ")
#: Cards that copy to each other through memory unless NVLink connects them.
_CONSUMER = ("GeForce", "TITAN")
#: Targets that rocBLAS of ROCm 7.1 has code for: 1103 since then, 1150 since 7.0, 1102 since 5.6.
ROCBLAS_TARGETS = (
    "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1012", "gfx1030",
    "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201",
)  # fmt: skip


def nvidia_gpus(report: ReportView) -> tuple[Device, ...]:
    """Return the NVIDIA GPUs, whether they answer or not.

    Raises DoesNotApply if there is none, NotReported if no file describes them.
    """
    if gpus := tuple(device for device in report.devices("nvidia") if device.kind == "cuda"):
        return gpus
    if report.fact("nvidia.wsl") or any(
        node.removeprefix("/dev/nvidia").isdecimal() for node in report.fact("nvidia.device_nodes", [])
    ):
        raise NotReported(_NOT_QUERIED)
    raise DoesNotApply("this machine has no NVIDIA GPU")


def described_gpus(report: ReportView) -> tuple[Device, ...]:
    """Return the NVIDIA GPUs that NVML described.

    Raises DoesNotApply without a GPU, NotReported if NVML was not asked or described none.
    """
    gpus = nvidia_gpus(report)
    if not any(map(is_driven, gpus)):
        raise DoesNotApply("no GPU here is driven by NVIDIA's driver")
    described = tuple(gpu for gpu in gpus if gpu.presence is not Presence.FOUND)
    if not described:
        refused = report.record.probes["nvidia"].reasons
        if report.record.depth is Presence.USABLE and refused:
            raise NotReported(f"NVML described no GPU: {refused[0].message}")
        raise NotReported(_NOT_QUERIED)
    return described


def is_driven(gpu: Device) -> bool:
    """Return whether NVIDIA's driver drives a GPU, according to NVML or the kernel."""
    return gpu.presence is not Presence.FOUND or gpu.facts.get("kernel_driver") == "nvidia"


def refused_by_module(report: ReportView, gpu: Device) -> tuple[str, str]:
    """Return why the loaded kernel module cannot drive a GPU, and what to install; ("", "") if it can."""
    kind = str(report.fact("nvidia.kernel_module", ""))
    branch = str(report.fact("nvidia.driver_release", "")).partition(".")[0]
    vendor, _, device = str(gpu.facts.get("pci_id", "")).partition(":")
    is_hexadecimal = bool(device) and set(device.lower()) <= set("0123456789abcdef")
    number = int(device, 16) if vendor == "10de" and is_hexadecimal else None
    if number is None or gpu.facts.get("kernel_driver", "nvidia") != "nvidia":
        return "", ""
    if number < _FIRST_TURING and branch.isdecimal() and int(branch) >= _WITHOUT_PASCAL:
        why = "older than Turing, which drivers have left out since 590"
        return why, "install a driver of the 580 branch with its proprietary kernel module"
    if number < _FIRST_TURING and kind == "open":
        why = "older than Turing, which needs the proprietary kernel module"
        return why, "install the driver with its proprietary kernel module"
    if kind == "proprietary" and (number >= _FIRST_BLACKWELL or number in _GRACE_HOPPER):
        family = "Grace Hopper" if number in _GRACE_HOPPER else "Blackwell or newer"
        why = f"{family}, which needs the open kernel module"
        return why, "install the driver with its open kernel module (nvidia-open)"
    return "", ""


def is_consumer_card(gpu: Device) -> bool:
    """Return whether a GPU is a GeForce or TITAN, which has no peer-to-peer access over PCIe."""
    return any(word in gpu.name for word in _CONSUMER)


def called(gpu: Device) -> str:
    """Return what to call a GPU in a sentence: its number, and its name or where it is."""
    about = ", ".join(part for part in (gpu.name, gpu.pci_address) if part)
    return f"GPU {gpu.index} ({about})" if about else f"GPU {gpu.index}"


def numbers(gpus: Iterable[Device]) -> str:
    """Return what to call several GPUs in a sentence: GPU 0-2,5."""
    return f"GPU {format_cpu_list([gpu.index for gpu in gpus])}"


def of_all_gpus(symptoms: Iterable[Symptom]) -> Iterator[Symptom]:
    """Yield the symptoms; those that differ only in the GPU that is `called` are one, of GPU 0-7."""
    groups: dict[object, list[Symptom]] = {}
    for symptom in symptoms:
        texts = (_CALLED.sub("", symptom.message, 1), _CHOSEN.sub("", symptom.command))
        groups.setdefault((texts, symptom.hint, symptom.severity), []).append(symptom)
    for first, *others in groups.values():
        indices = [match[1] for one in (first, *others) if (match := _CALLED.search(one.message))]
        if not others or not indices:
            yield from (first, *others)
            continue
        yield replace(
            first,
            message=_CALLED.sub(f"GPU {format_cpu_list(map(int, indices))}", first.message, 1),
            command=_CHOSEN.sub(f" -i {','.join(indices)} ", first.command),
            evidence={name: one for each in (first, *others) for name, one in each.evidence.items()},
        )


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
