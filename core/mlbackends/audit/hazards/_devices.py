"""Hazards of accelerators other than NVIDIA's, and of the links between all."""

from contextlib import suppress
from typing import NamedTuple

from mlbackends.audit.environment import integer, is_number, setting, settings
from mlbackends.audit.gpus import ROCBLAS_TARGETS, called, is_consumer_card, numbers
from mlbackends.audit.hazard import (
    DoesNotApply,
    NotReported,
    ReportView,
    Severity,
    Symptom,
    Symptoms,
    from_warning,
)
from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table
from mlbackends.model.records import FactValue, Presence

_WITH_A_RUNTIME = ("rocm", "xpu", "ascend", "gaudi", "neuron", "tpu")
_OUT_OF_REACH = ("no-device", "no-driver", "permission-denied", "call-failed")
_OWN_PAGE = ("rocm", "xpu")
_HIDDEN = ("hidden-by-variable", "override-invalid")


def accelerator_out_of_reach(report: ReportView) -> Symptoms:
    """Yield one for each kind of accelerator that its runtime does not reach."""
    found = [name for name in _WITH_A_RUNTIME if report.devices(name) and report.libraries(name)]
    if not found:
        raise DoesNotApply("there is no accelerator with an installed runtime, other than NVIDIA's")
    for name in found:
        probe = report.probe(name)
        if probe is None or probe.presence is Presence.USABLE:
            continue
        if any(True for code in _HIDDEN for _ in report.warnings(name, code)):
            continue
        reasons = [reason for reason in probe.reasons if reason.code in _OUT_OF_REACH]
        if name in _OWN_PAGE and any("/dev/" in reason.message for reason in reasons):
            continue
        card = report.devices(name)[0]
        for reason in reasons[:1]:
            yield Symptom(
                f"{reason.message}; the kernel lists {card.name or 'a card'} at {card.pci_address or '/dev'}",
                hint=reason.hint,
                evidence={f"{name}.reasons.code": [reason.code]},
                severity=Severity.NOTE if (name, reason.code) == ("xpu", "no-driver") else None,
            )


_CONTAINER = "podman run --device=/dev/kfd --device=/dev/dri --group-add keep-groups ..."
_COMMANDS = {
    "podman": _CONTAINER,
    "docker": "docker run --device=/dev/kfd --device=/dev/dri --group-add $(stat -c %g /dev/kfd) ...",
}


def rocm_kfd_not_accessible(report: ReportView) -> Symptoms:
    """Yield one for /dev/kfd, and one for each GPU whose own node is closed."""
    gpus = [device for device in report.devices("rocm") if device.kind == "rocm"]
    if not gpus:
        raise DoesNotApply("this machine has no AMD GPU")
    probe_report = report.probe("rocm")
    if probe_report is None or probe_report.presence is Presence.USABLE:
        return
    if (
        not probe_report.libraries
        and not report.fact("rocm.installations")
        and not report.fact("torch.hip_version")
    ):
        raise DoesNotApply("no ROCm software is installed")
    kind = str(report.fact("host.container", "none"))
    reasons = [reason for reason in probe_report.reasons if "/dev/kfd" in reason.message]
    reasons += [
        reason
        for gpu in gpus
        for reason in gpu.reasons
        if reason.code == "permission-denied" and "/dev/dri/" in reason.message
    ]
    for reason in dict.fromkeys(reasons):
        yield from_warning(
            reason,
            command=_COMMANDS.get(kind, ""),
            evidence={"rocm.reasons.code": [reason.code], "host.container": kind},
        )


_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"


def rocm_hsa_override(report: ReportView) -> Symptoms:
    """Yield one for a value that misleads; a note where ROCm has no code for the GPU itself."""
    targets = {gpu.capability for gpu in report.devices("rocm") if gpu.capability}
    is_needed = bool(targets) and targets.isdisjoint(report.fact("rocblas.targets", ROCBLAS_TARGETS))
    evidence: dict[str, FactValue] = {
        f"rocm.environment.{_OVERRIDE}": report.variable(_OVERRIDE) or "",
        "rocm.targets": sorted(targets),
    }
    for code in ("target-overridden", "override-invalid"):
        for warning in report.warnings("rocm", code):
            is_note = is_needed and code == "target-overridden"
            yield Symptom(
                warning.message,
                hint="" if is_note else warning.hint,
                command="" if is_note else f"unset {_OVERRIDE}",
                evidence=evidence,
                severity=Severity.NOTE if is_note else None,
            )


_WHEEL = pattern(r"(\d{1,3})\.(\d{1,3})\.\d{1,3}(?:\+cu\d{2,3})?")
_RELEASE = pattern(r"(\d{1,2})\.(\d{1,2})")
_FOR_BLACKWELL = "install torch 2.7 or newer for CUDA 12.8 or newer (+cu128, +cu130)"
_FOR_OLDER = "install the torch for CUDA 12.6 (+cu126), up to release 2.14"


def torch_without_code_for_gpu(report: ReportView) -> Symptoms:
    """Yield one for each kind of GPU that no code is for."""
    version, cuda = report.version("torch"), report.fact("torch.cuda_version", "")
    gpus = [device for device in report.devices("nvidia") if device.kind == "cuda"]
    if not cuda or not gpus:
        raise DoesNotApply("there is no torch for CUDA together with an NVIDIA GPU")
    build = "host.machine" if report.fact("host.machine") == "aarch64" else "host.platform"
    copies = [library for library in report.libraries("torch") if library.found_by == "site-packages"]
    is_wheel = any(copy.owner.startswith("torch ") for copy in copies)
    codes = targets(version, cuda, str(report.fact(build, "")), is_wheel)
    if codes is None:
        raise NotReported(f"the targets of torch {version} for CUDA {cuda} are not known")
    kinds = {gpu.capability: gpu for gpu in gpus if gpu.capability}
    for capability, gpu in kinds.items():
        if not runs_on(capability, codes):
            yield Symptom(
                f"torch {version}, built for CUDA {cuda}, is compiled for"
                f" {', '.join(codes.listed)}; GPU {gpu.index} ({gpu.name}) is {capability}",
                hint=_FOR_BLACKWELL if int(capability.partition(".")[0]) >= 10 else _FOR_OLDER,
                evidence={
                    "torch.cuda_version": cuda,
                    f"nvidia.devices.{gpu.index}.capability": capability,
                },
            )
    if not kinds:
        raise NotReported("no GPU reports its compute capability")


class Targets(NamedTuple):
    """What a build is compiled for. listed: for people. codes: () where only the bounds are known."""

    listed: tuple[str, ...]
    codes: tuple[str, ...] = ()
    lowest: str = ""
    highest: str = ""


def targets(version: str, cuda: str, build: str, is_wheel: bool = True) -> Targets | None:
    """Return what a build of torch is compiled for; None where nothing is known of it.

    build: aarch64, or the platform. is_wheel: whether it came as a wheel; of other builds only the
    compiler's lowest GPU is known.
    """
    data = table("audit/hazards/torch_without_code_for_gpu.toml")
    wheel, release = _WHEEL.fullmatch(version), _RELEASE.match(cuda)
    if release is None:
        return None
    compiler = [int(release[1]), int(release[2])]
    if is_wheel and wheel:
        torch = [int(wheel[1]), int(wheel[2])]
        for row in data["wheels"]:
            first, last = row["torch"]
            if first <= torch <= last and release[0] == row["cuda"]:
                codes = tuple(row.get(build, row["x86_64"]))
                return Targets(codes, codes)
    for row in data["compilers"]:
        if compiler >= row["since"] and compiler[0] == row["since"][0]:
            lowest, highest = row["lowest"], row["highest"]
            if is_wheel and wheel:
                return Targets((f"{lowest} to {highest} at most",), (), lowest, highest)
            return Targets((f"{lowest} and newer at most",), (), lowest, "99.9")
    return None


def runs_on(capability: str, code: Targets) -> bool:
    """Return whether a GPU can run some of the code; true for an invalid capability.

    A cubin runs on GPUs of the same major and the same or a higher minor number.
    """
    gpu = dotted_numbers(capability)
    if len(gpu) != 2:
        return True
    if not code.codes:
        return dotted_numbers(code.lowest) <= gpu <= dotted_numbers(code.highest)
    compiled = [dotted_numbers(name) for name in code.codes if name != "PTX"]
    has_ptx = "PTX" in code.codes and gpu >= compiled[-1]
    return has_ptx or any(target[0] == gpu[0] and target <= gpu for target in compiled)


_OF_LAPTOPS = "It cannot be reseated in a laptop: update the firmware and check its power settings."
_KINDS = {"nvidia": "cuda", "rocm": "rocm"}


def pcie_width_degraded(report: ReportView) -> Symptoms:
    """Yield one for each GPU whose link is narrower than both of its ends."""
    if report.fact("host.virtualisation", "none") != "none":
        raise DoesNotApply("a virtual machine does not report the real link")
    looked_at, is_laptop = 0, report.fact("host.is_laptop")
    for probe, kind in _KINDS.items():
        for gpu in report.devices(probe):
            now = gpu.volatile.get("pcie_width")
            # NVIDIA's GPUs and Instincts keep the width of their links while they are idle.
            is_steady = gpu.kind == "cuda" or gpu.capability.startswith("gfx9")
            if gpu.kind != kind or not isinstance(now, int) or not is_steady:
                continue
            looked_at += 1
            ends = (gpu.facts.get("max_pcie_width"), gpu.facts.get("max_pcie_slot_width"))
            most = min((width for width in ends if isinstance(width, int)), default=0)
            if 0 < now < most:
                names = ("max_pcie_width", "max_pcie_slot_width")
                evidence = {name: gpu.facts[name] for name in names if name in gpu.facts}
                evidence["pcie_width"] = now
                yield Symptom(
                    f"the PCIe link of {called(gpu)} has {now} lanes; card and slot support {most}",
                    hint=_OF_LAPTOPS if is_laptop or "Laptop" in gpu.name else "",
                    evidence={
                        f"{probe}.devices.{gpu.index}.{name}": value for name, value in evidence.items()
                    },
                )
    if not looked_at:
        raise DoesNotApply("no GPU reports the width of its link")


def pcie_access_control(report: ReportView) -> Symptoms:
    """Yield one for a translating IOMMU, and one for switches that redirect."""
    if report.fact("host.machine") != "x86_64":
        raise DoesNotApply("this applies only to x86")
    if report.need("host.virtualisation") != "none":
        raise DoesNotApply("a virtual machine needs the IOMMU of its host")
    gpus = [  # those that may copy to each other
        gpu
        for gpu in report.devices("nvidia")
        if gpu.kind == "cuda" and gpu.facts.get("kernel_driver") == "nvidia" and not is_consumer_card(gpu)
    ]
    if len(gpus) < 2:
        raise DoesNotApply("there are fewer than two NVIDIA GPUs that copy to each other over PCIe")
    domains = {str(gpu.facts["iommu_domain"]) for gpu in gpus if "iommu_domain" in gpu.facts}
    parameters = report.fact("host.kernel_parameters", {})
    translating = sorted(domain for domain in domains if domain.startswith("DMA"))
    if translating:
        yield Symptom(
            f"the addresses of {len(gpus)} GPUs are translated (IOMMU domain {translating[0]});"
            " copies between them need iommu=pt",
            hint="add iommu=pt to the kernel's parameters, and reboot",
            evidence={
                "nvidia.devices.0.iommu_domain": translating[0],
                "host.kernel_parameters": dict(parameters),
            },
        )
    redirected = [gpu for gpu in gpus if gpu.facts.get("peers_redirected")]
    if redirected:
        message = "a PCIe switch routes the traffic between these GPUs through the CPU (ACS):"
        yield Symptom(
            f"{message} {', '.join(map(called, redirected))}",
            hint="switch ACS off in the firmware, or on each switch with setpci (ECAP_ACS+0x6.w=0000)",
            evidence={f"nvidia.devices.{gpu.index}.peers_redirected": True for gpu in redirected},
        )
    has_nvlink = any("nvlinks" in pair for pair in report.fact("nvidia.topology", []))
    at_root = [gpu for gpu in gpus if gpu.facts.get("root_port_redirects")]
    if len(at_root) > 1 and not has_nvlink and not translating and not redirected:
        yield Symptom(
            f"the root ports of {numbers(at_root)} send the traffic between them through the IOMMU"
            " (ACS); on some boards NCCL then hangs",
            hint="if NCCL hangs, switch ACS off in the firmware or with setpci (ECAP_ACS+0x6.w=0000)",
            evidence={f"nvidia.devices.{gpu.index}.root_port_redirects": True for gpu in at_root},
            severity=Severity.NOTE,
        )
    passes = "pt" in str(parameters.get("iommu", "")) or parameters.get("iommu.passthrough") == "1"
    if not domains and not redirected and not passes:
        raise NotReported("the IOMMU domain of the GPUs is not reported")


def _is_one(value: str) -> bool:
    return integer(value) == 1


_P2P = {
    "NCCL_P2P_DISABLE": (_is_one, "GPUs do not read each other's memory over NVLink or PCI"),
    "NCCL_P2P_LEVEL": (
        lambda value: value == "LOC" or (value[:1].isdecimal() and integer(value) == 0),
        "GPUs do not read each other's memory over NVLink or PCI",
    ),
}
#: Paths between GPUs over which NCCL copies from one to the other on any machine: they share a PCIe switch.
_NEAR = ("same-board", "one-switch", "several-switches")
_SHARED_MEMORY = {"NCCL_SHM_DISABLE": (_is_one, "processes on this machine communicate over the network")}
_OVER_TCP = "nodes communicate over TCP sockets instead of this machine's RDMA device"
_BETWEEN_NODES = {
    "NCCL_IB_DISABLE": (is_number, _OVER_TCP),
    "NCCL_NET": (lambda value: value.lower() == "socket", _OVER_TCP),
}


def nccl_leftovers(report: ReportView) -> Symptoms:
    """Yield each way that is there and not taken."""
    gpus = report.fact("nvidia.pci_gpu_count", 0) or report.fact("nvidia.gpu_count", 0)
    gpus = max(gpus, report.fact("rocm.gpu_count", 0))  # RCCL reads NCCL's variables
    cards = [gpu for gpu in report.devices("nvidia") if gpu.kind == "cuda"]
    has_pcie = not (cards and all(map(is_consumer_card, cards)))
    is_amd_pair = gpus == 2 and report.fact("cpu.vendor") == "AMD"
    copies = [
        "nvlinks" in pair or (has_pcie and (is_amd_pair or pair.get("path", _NEAR[0]) in _NEAR))
        for pair in report.fact("nvidia.topology", [])
    ] or [has_pcie]
    table = dict(_P2P) if gpus > 1 and any(copies) else {}
    layers = report.fact("host.rdma_link_layers")
    if report.fact("host.rdma_devices", []):
        table |= _BETWEEN_NODES
    if layers == ["Unknown"]:  # EFA, which NCCL reaches by a plugin
        table.pop("NCCL_IB_DISABLE", None)
    is_redirected = False
    with suppress(DoesNotApply, NotReported):
        is_redirected = any(True for _ in pcie_access_control(report))
    variables = settings(report)
    rows = {row["name"]: row for row in report.fact("nccl.configuration", [])}
    has_found = False
    for name, (has_effect, effect) in (table | _SHARED_MEMORY if gpus > 1 else table).items():
        if name in _SHARED_MEMORY and all(copies) and not has_found:
            continue
        row = {} if name in variables else rows.get(name, {})
        value, file = variables.get(name) or row.get("value", ""), row.get("file", "")
        if value and has_effect(value):
            has_found = has_found or name in _P2P
            hint = f"remove its line from {file}" if file else ""
            if is_needed := is_redirected and name in _P2P:
                hint = "first do what pcie-access-control advises: until then P2P is slow, or hangs"
            yield Symptom(
                f"{setting(name, value)}{f' in {file}' if file else ''}: {effect}",
                hint=hint,
                command="" if file or is_needed else f"unset {name}",
                evidence={"nccl.configuration": [row]} if file else {f"environment.variables.{name}": value},
                severity=Severity.NOTE if layers == ["Ethernet"] and name in _BETWEEN_NODES else None,
            )
