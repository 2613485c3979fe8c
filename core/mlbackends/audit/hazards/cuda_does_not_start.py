"""NVML can see the GPUs, but CUDA does not start on them."""

from mlbackends.audit.gpus import described_gpus
from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms
from mlbackends.model.records import Presence

_REPORTED_ELSEWHERE = (
    ("nvidia", "compute-prohibited"),
    ("nvidia", "device-nodes-missing"),
    ("nvidia", "permission-denied"),
    ("nvidia", "hidden-by-variable"),
    ("nvidia", "override-invalid"),
)
_CODES = (
    "initialization-failed",
    "mps-unreachable",
    "no-device",
    "call-failed",
    "device-unavailable",
)
_NO_HMM = "uvm_disable_hmm"


def symptoms(report: ReportView) -> Symptoms:
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
        if reason.code not in _CODES:
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
