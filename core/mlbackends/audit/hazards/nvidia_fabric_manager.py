"""The NVSwitch fabric between the GPUs is not set up."""

from mlbackends.audit.gpus import container, numbers, nvidia_gpus
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.model.records import Presence

_NOT_READY = ("not-started", "in-progress")
_WITH_SUBNET_MANAGER = ("10", "11", "12", "13")
_SUBNET_MANAGER = "these GPUs are Blackwell or newer: install the NVLink Subnet Manager (nvlsm) too"
_COMMAND = "sudo systemctl enable --now nvidia-fabricmanager"


def symptoms(report: ReportView) -> Symptoms:
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
    command = "" if container(report) else _COMMAND
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
    refused = driver.reasons if driver is not None else ()
    for reason in refused:
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
