"""Hazards of NVIDIA's GPUs and driver."""

import itertools

from mlbackends.audit.gpus import (
    called,
    container,
    described_gpus,
    is_driven,
    numbers,
    nvidia_gpus,
    refused_by_module,
    see_part_of_machine,
)
from mlbackends.audit.hazard import (
    DoesNotApply,
    Problem,
    ReportView,
    Severity,
    Symptom,
    Symptoms,
    from_warning,
)
from mlbackends.base.errors import counted
from mlbackends.model.records import Device, FactValue, Presence

_NOT_DRIVEN = ("nouveau-bound", "no-driver")
_USERS = ("cuda_driver", "cuda_runtime", "cuda_toolkit", "cudnn", "cublas", "cupy")


def nvidia_no_driver(report: ReportView) -> Symptoms:
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
    for code in _NOT_DRIVEN:
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


def nvidia_module_does_not_fit(report: ReportView) -> Symptoms:
    """Yield one for the GPUs that the module cannot drive for the same reason."""
    kind = str(report.fact("nvidia.kernel_module", ""))
    release = str(report.fact("nvidia.driver_release", ""))
    for gpu in nvidia_gpus(report):
        why, hint = refused_by_module(report, gpu)
        if why and gpu.presence is Presence.FOUND:
            module = f"{kind or 'nvidia'} module {release}".rstrip()
            yield Symptom(
                f"the loaded {module} does not support {called(gpu)}: it is {why}",
                hint=hint,
                evidence={
                    "nvidia.kernel_module": kind,
                    "nvidia.driver_release": release,
                    f"nvidia.devices.{gpu.index}.pci_id": str(gpu.facts["pci_id"]),
                },
            )


_LOST = ("gpu-lost", "reset-required", "timed-out")


def nvidia_gpu_lost(report: ReportView) -> Symptoms:
    """Yield one for each GPU that NVML lost, and for each that it does not count."""
    gpus = nvidia_gpus(report)
    probe_report = report.probe("nvidia")
    counted = report.fact("nvidia.gpu_count")
    lost = [(gpu, reason) for gpu in gpus for reason in gpu.reasons if reason.code in _LOST]
    for gpu, reason in lost:
        name = f"nvidia.devices.{gpu.index}.reasons.code"
        yield Symptom(f"{called(gpu)}: {reason.message}", hint=reason.hint, evidence={name: [reason.code]})
    for reason in probe_report.reasons if probe_report is not None and not lost else ():
        if reason.code in ("gpu-lost", "reset-required"):
            yield from_warning(reason, evidence={"nvidia.reasons.code": [reason.code]})
            return
    described_gpus(report)
    if counted is None or see_part_of_machine(report):
        return
    silent = [
        gpu
        for gpu in gpus
        if gpu.presence is Presence.FOUND
        and gpu.facts.get("kernel_driver") == "nvidia"
        and not gpu.facts.get("excluded")
        and all(gpu is not lost_gpu for lost_gpu, _ in lost)
    ]
    # One that NVML counts and cannot name may be one of the silent, reported without its address.
    nameless = sum(not gpu.pci_address for gpu, _ in lost)
    for gpu in silent[nameless:]:
        yield Symptom(
            f"{gpu.name or 'a GPU'} at {gpu.pci_address} is on the bus with NVIDIA's driver, but NVML"
            f" lists {counted} GPUs without it",
            evidence={
                "nvidia.gpu_count": counted,
                "nvidia.pci_gpu_count": report.fact("nvidia.pci_gpu_count", 0),
            },
        )


def nvidia_ecc_errors(report: ReportView) -> Symptoms:
    """Yield one for each GPU with such errors, unless the driver requests no action."""
    for gpu in described_gpus(report):
        count = gpu.volatile.get("ecc_uncorrected_since_load")
        action = gpu.facts.get("recovery_action")
        is_row = gpu.facts.get("row_remap_pending") or gpu.facts.get("row_remap_failed")
        if not isinstance(count, int) or not count or is_row or action == "none":
            continue
        errors = counted(count, "uncorrected memory error")
        message = f"{called(gpu)} had {errors} since its driver was loaded"
        severity, hint = None, ""
        if action is not None:
            message += f", and requests recovery: {action}"
        elif "remapped_rows" in gpu.facts:
            severity = Severity.NOTE
            hint = "the driver is too old to report whether a reset is needed; look for Xid 95 and 154"
        else:
            severity = Severity.WARNING
            hint = "drain the machine and reset the GPU, so that the page is retired"
        yield Symptom(
            message,
            hint=hint,
            evidence={
                f"nvidia.devices.{gpu.index}.ecc_uncorrected_since_load": count,
                **({f"nvidia.devices.{gpu.index}.recovery_action": action} if action else {}),
            },
            severity=severity,
        )


_BAD = {
    "hardware-thermal-slowdown": "too hot (hardware)",
    "software-thermal-slowdown": "too hot (driver)",
    "hardware-power-brake": "the power supply requested less power (power brake)",
}


def nvidia_throttled(report: ReportView) -> Symptoms:
    """Yield one for each GPU that is slowed down now."""
    for gpu in described_gpus(report):
        limits = gpu.volatile.get("clock_limits")
        if not isinstance(limits, list):
            continue
        evidence = {
            f"nvidia.devices.{gpu.index}.{name}": gpu.volatile[name]
            for name in ("clock_limits", "temperature_celsius", "power_watts", "sm_clock_hertz")
            if name in gpu.volatile
        }
        bad = [words for limit, words in _BAD.items() if limit in limits]
        if bad:
            message = f"{called(gpu)} is throttled: {', '.join(bad)}"
            yield Symptom(message, evidence=evidence)
        elif "hardware-slowdown" in limits and "idle" not in limits:
            # Some drivers show it alone for a moment while the clocks change.
            message = f"{called(gpu)} is throttled by its hardware for an unknown reason"
            hint = "check again: it may have been a change of clocks; then check heat and power"
            yield Symptom(message, hint=hint, evidence=evidence, severity=Severity.NOTE)


def nvidia_nvlink_down(report: ReportView) -> Symptoms:
    """Yield one for each GPU that has fewer than the best of its model."""
    models: dict[str, list[tuple[int, Device]]] = {}
    for gpu in described_gpus(report):
        up = gpu.facts.get("nvlinks_active")
        if isinstance(up, int) and not gpu.facts.get("mig"):
            models.setdefault(gpu.name, []).append((up, gpu))
    for name, gpus in models.items():
        most = max(up for up, _ in gpus)
        for up, gpu in gpus:
            # Of cards that are joined in pairs, one without a bridge lacks nothing.
            if 0 < up < most or (up == 0 and gpu.facts.get("nvlinks_lead_to_switch")):
                yield Symptom(
                    f"{called(gpu)} has {up} active NVLinks; other {name} have {most}",
                    evidence={
                        f"nvidia.devices.{gpu.index}.nvlinks_active": up,
                        f"nvidia.devices.{gpu.index}.nvlinks": gpu.facts.get("nvlinks", 0),
                    },
                )


_NOT_READY = ("not-started", "in-progress")
_WITH_SUBNET_MANAGER = ("10", "11", "12", "13")
_SUBNET_MANAGER = "these GPUs are Blackwell or newer: install the NVLink Subnet Manager (nvlsm) too"
_START_FABRIC_MANAGER = "sudo systemctl enable --now nvidia-fabricmanager"


def nvidia_fabric_manager(report: ReportView) -> Symptoms:
    """Yield one for each GPU whose fabric is not ready; without NVML's word, one for the machine."""
    gpus = nvidia_gpus(report)
    release = str(report.fact("nvidia.driver_release", ""))
    evidence = {
        "nvidia.nvswitches": report.fact("nvidia.nvswitches", 0),
        "nvidia.fabric_manager": report.fact("nvidia.fabric_manager", False),
        "nvidia.driver_release": release,
    }
    driver = report.probe("cuda_driver")
    if driver is not None and driver.presence is Presence.USABLE:
        return
    command = "" if container(report) else _START_FABRIC_MANAGER
    # Their switches appear on the bus as Mellanox devices.
    is_newer = any(gpu.capability.partition(".")[0] in _WITH_SUBNET_MANAGER for gpu in gpus)
    hint = _SUBNET_MANAGER if is_newer and command else ""
    waiting = [gpu for gpu in gpus if gpu.facts.get("fabric_state") in _NOT_READY]
    if waiting:
        states = sorted({str(gpu.facts["fabric_state"]) for gpu in waiting})
        message = f"the NVLink fabric of {numbers(waiting)} is {' or '.join(states)}: CUDA cannot start"
        if command and evidence["nvidia.nvswitches"] and not evidence["nvidia.fabric_manager"]:
            message += ", and the fabric manager is not running"
        yield Symptom(message, hint=hint, command=command, evidence=evidence)
        return
    for reason in driver.reasons if driver is not None else ():
        if reason.code == "fabric-not-ready":
            message, hint = reason.message, hint or reason.hint
            yield Symptom(message, hint=hint, command=command, evidence=evidence)
            return
    if not command or not evidence["nvidia.nvswitches"]:
        return
    if report.fact("nvidia.fabric_manager") or any(
        gpu.facts.get("fabric_state") == "completed" for gpu in gpus
    ):
        return
    message = f"{evidence['nvidia.nvswitches']} NVSwitches connect the GPUs, but the fabric manager is not"
    needed = f" (nvidia-fabricmanager {release} is needed)" if release else ""
    yield Symptom(f"{message} running{needed}", command=command, evidence=evidence)


def nvidia_persistence_off(report: ReportView) -> Symptoms:
    """Yield one for all GPUs whose persistence mode is off."""
    gpus = described_gpus(report)
    if kind := container(report):
        raise DoesNotApply(f"in a container ({kind}) the host decides")
    if report.fact("nvidia.wsl"):
        raise DoesNotApply("on WSL the driver belongs to Windows")
    loose = [
        gpu
        for gpu in gpus
        if gpu.facts.get("persistence_mode") is False and not gpu.volatile.get("display_active")
    ]
    if loose:
        evidence: dict[str, FactValue] = {
            f"nvidia.devices.{gpu.index}.persistence_mode": False for gpu in loose
        }
        evidence["nvidia.persistence_daemon"] = bool(report.fact("nvidia.persistence_daemon"))
        yield Symptom(
            f"persistence mode is off for {numbers(loose)}",
            hint="until the next reboot",
            command="sudo nvidia-smi -pm 1",
            evidence=evidence,
        )


_ORDER, _VISIBLE = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"


def nvidia_device_order(report: ReportView) -> Symptoms:
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


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_SEVERAL_SINCE = 570


def nvidia_mig_visible_devices(report: ReportView) -> Symptoms:
    """Yield one for a list that MIG cuts short, and one for each GPU that is split into nothing."""
    gpus = nvidia_gpus(report)
    instances = [device for device in report.devices("nvidia") if device.kind == "mig"]
    shown = report.fact("nvidia.mig_instances", [])
    split = [gpu for gpu in gpus if gpu.facts.get("mig")]
    if not split and not shown:
        raise DoesNotApply("no GPU is in MIG mode")
    facts: dict[str, FactValue] = {"nvidia.mig_instances": shown}
    if instances:
        facts = {"nvidia.devices.kind": ["mig"] * len(instances)}
    value = report.variable(_VISIBLE)
    entries = [entry.strip() for entry in (value or "").split(",") if entry.strip()]
    evidence: dict[str, FactValue] = {f"environment.variables.{_VISIBLE}": value or "", **facts}
    named = [entry for entry in entries if entry.startswith("MIG-")]
    branch = str(report.fact("nvidia.driver_release", "")).partition(".")[0]
    if branch.isdecimal() and int(branch) >= _SEVERAL_SINCE:
        parts = {
            device.uuid: (str(device.facts.get("parent")), str(device.facts["gpu_instance"]))
            for device in report.devices("nvidia")
            if device.kind == "mig" and "gpu_instance" in device.facts
        }
        chosen = [parts[entry] for entry in named if entry in parts]
        if len(chosen) > len(set(chosen)):
            message = f"{_VISIBLE} names {len(chosen)} MIG instances that are parts of"
            message += f" {len(set(chosen))} GPU instances; a process can use one of each"
            yield Symptom(message, evidence=evidence)
    elif len(named) > 1:
        message = f"{_VISIBLE} names {len(named)} MIG instances; a process can use only the first"
        yield Symptom(message, evidence=evidence)
    elif entries and entries[0].isdecimal():
        message = f"{_VISIBLE} is {value!r}: a number selects a GPU, of which a process in MIG mode can use"
        yield Symptom(f"{message} only the first instance", evidence=evidence, severity=Severity.NOTE)
    if container(report):
        return
    with_instances = {instance.facts.get("parent") for instance in instances}
    for gpu in split:
        if gpu.index not in with_instances:
            yield Symptom(
                f"{called(gpu)} is in MIG mode and has no instance: CUDA cannot use it",
                hint="create instances (nvidia-smi mig -cgi ... -C), or switch MIG off",
                command=f"sudo nvidia-smi -i {gpu.index} -mig 0",
                evidence={f"nvidia.devices.{gpu.index}.mig": True},
                severity=Severity.ERROR,
                problem=Problem.NODE,
            )


_REPORTED_ELSEWHERE = (
    ("nvidia", "compute-prohibited"),
    ("nvidia", "device-nodes-missing"),
    ("nvidia", "permission-denied"),
    ("nvidia", "hidden-by-variable"),
    ("nvidia", "override-invalid"),
)
_NOT_STARTED = (
    "initialization-failed",
    "mps-unreachable",
    "no-device",
    "call-failed",
    "device-unavailable",
)
_NO_HMM = "uvm_disable_hmm"


def cuda_does_not_start(report: ReportView) -> Symptoms:
    """Yield one for the error of the driver that programs load."""
    gpus = described_gpus(report)
    driver = report.probe("cuda_driver")
    if driver is None or driver.presence is not Presence.LOADABLE:
        return
    if any(True for probe, code in _REPORTED_ELSEWHERE for _ in report.warnings(probe, code)):
        raise DoesNotApply("another hazard reports the cause")
    has_parts = any(device.kind == "mig" for device in report.devices("nvidia"))
    if all(gpu.facts.get("mig") for gpu in gpus) and not has_parts:
        raise DoesNotApply("every GPU is in MIG mode and has no instance")
    parameters = report.fact("nvidia.module_parameters", {})
    for reason in driver.reasons:
        if reason.code not in _NOT_STARTED:
            continue
        hint, command = reason.hint, ""
        if reason.code == "initialization-failed" and parameters.get(_NO_HMM) == "Y":
            hint = "HMM is off already: look for NVRM and nvidia-uvm in the kernel log"
        elif reason.code == "mps-unreachable":
            command = "nvidia-cuda-mps-control -d"
        evidence = {
            "cuda_driver.reasons.code": [reason.code],
            "nvidia.gpu_count": report.fact("nvidia.gpu_count", len(gpus)),
            "nvidia.module_parameters": parameters,
            "nvidia.environment": report.fact("nvidia.environment", {}),
        }
        severity = Severity.WARNING if reason.code == "device-unavailable" else None
        yield Symptom(reason.message, hint, command, evidence, severity)
        return


_SEARCHED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "mapped", "ld.so.cache", "system-folder")


def cuda_stub_library(report: ReportView) -> Symptoms:
    """Yield one for each stub that the loader meets first."""
    for probe in ("cuda_driver", "nvidia"):
        before = itertools.takewhile(lambda library: bool(library.reasons), report.libraries(probe))
        stubs = [
            library
            for library in before
            if library.found_by in _SEARCHED
            and any(reason.code == "stub-library" for reason in library.reasons)
        ]
        numbered = [library for library in stubs if library.path.endswith(".so.1")]
        for library in numbered or stubs:
            yield Symptom(
                f"{library.path} is a stub for linking, and {library.found_by} puts it before the"
                " driver's own",
                evidence={f"{probe}.libraries.path": [library.path]},
                severity=None if numbered else Severity.NOTE,
            )


def wsl_linux_driver(report: ReportView) -> Symptoms:
    """Yield one for each library of the driver that is hidden."""
    if report.fact("host.wsl_version") is None and not report.fact("nvidia.wsl"):
        raise DoesNotApply("this is not WSL")
    for probe in ("cuda_driver", "nvidia"):
        winners = [library for library in report.libraries(probe) if library.wins]
        owner = winners[0].owner.split(" ")[0] if winners else ""
        has_apt = report.fact("host.os_id") in ("ubuntu", "debian")
        for warning in report.warnings(probe, "conflict"):
            yield Symptom(
                warning.message + (f"; it belongs to {owner}" if owner else ""),
                hint=warning.hint,
                command=f"sudo apt remove {owner}" if owner and has_apt else "",
                evidence={f"{probe}.libraries.path": [library.path for library in winners]},
            )
