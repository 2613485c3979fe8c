"""NVML can see the GPUs, but CUDA does not start on them.

Found by:  the return values of cuInit and other calls, where NVML describes a GPU.
No alarm:  refusals that are other hazards: the fabric, different releases, a stub, forward compatibility,
           device nodes, a variable that hides the GPUs, a compute mode that prohibits programs, MIG without
           instances.
Severity:  a warning for a device that another program uses in exclusive mode.
"""

from mlbackends.audit.gpus import described_gpus
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.model.records import Presence

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("nvidia", "cuda_driver")
WHY = (
    "No CUDA program starts: frameworks report that there is no GPU, or stop, while nvidia-smi lists "
    "every GPU as usual."
)
FIX = "Look for NVRM and nvidia-uvm in the kernel log; reload nvidia_uvm, or reboot the machine."
SOURCES = (
    "https://docs.nvidia.com/cuda/cuda-driver-api/ (CUresult)",
    "NVIDIA/open-gpu-kernel-modules#901 (3: HMM)",
    "NVIDIA/open-gpu-kernel-modules#947 (3: HMM)",
    "NVIDIA/open-gpu-kernel-modules#797 (3: HMM)",
    "NVIDIA/nvidia-container-toolkit#714 (805: MPS)",
    "NVIDIA/k8s-device-plugin#647 (46: MPS)",
)
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
