"""A program cannot use the MIG instances that it selects."""

from typing import TYPE_CHECKING

from mlbackends.audit.gpus import called, container, nvidia_gpus
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import FactValue

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_SEVERAL_SINCE = 570


def symptoms(report: ReportView) -> Symptoms:
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
    value = report.variable(_VARIABLE)
    entries = [entry.strip() for entry in (value or "").split(",") if entry.strip()]
    evidence: dict[str, FactValue] = {f"environment.variables.{_VARIABLE}": value or "", **facts}
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
            message = f"{_VARIABLE} names {len(chosen)} MIG instances that are parts of"
            message += f" {len(set(chosen))} GPU instances; a process can use one of each"
            yield Symptom(message, evidence=evidence)
    elif len(named) > 1:
        message = f"{_VARIABLE} names {len(named)} MIG instances; a process can use only the first"
        yield Symptom(message, evidence=evidence)
    elif entries and entries[0].isdecimal():
        message = f"{_VARIABLE} is {value!r}: a number selects a GPU, of which a process in MIG mode can use"
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
