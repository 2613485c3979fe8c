"""A GPU on the bus does not respond.

Found by:  GPUs on PCI that use the nvidia driver, compared with those that NVML counts; NVML's errors: lost
           (15), reset required (16), and timeout (10).
No alarm:  containers, WSL and Slurm jobs, where NVML shows only some GPUs; GPUs that are excluded, reserved
           for virtual machines, or use another driver.
"""

from mlbackends.audit.gpus import called, described_gpus, nvidia_gpus, see_part_of_machine
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms, from_warning
from mlbackends.model.records import Presence

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("nvidia", "host")
WHY = (
    "A job that uses all GPUs hangs or stops, and the numbers of the following GPUs change. For a GPU "
    "that fell off the bus NVIDIA recommends restarting the machine."
)
FIX = (
    "Drain the machine, look for Xid 79 or 154 in the kernel log, restart it; replace a GPU that is lost "
    "again."
)
SOURCES = (
    "NVIDIA/NVSentinel#684",
    "leptonai/gpud#1209",
    "aws/eks-node-monitoring-agent#94",
    "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (79: RESTART_BM)",
)
_CODES = ("gpu-lost", "reset-required", "timed-out")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU that NVML lost, and for each that it does not count."""
    gpus = nvidia_gpus(report)
    probe_report = report.probe("nvidia")
    counted = report.fact("nvidia.gpu_count")
    lost = [(gpu, reason) for gpu in gpus for reason in gpu.reasons if reason.code in _CODES]
    for gpu, reason in lost:
        name = f"nvidia.devices.{gpu.index}.reasons.code"
        yield Symptom(
            f"{called(gpu)}: {reason.message}", hint=reason.hint, evidence={name: [reason.code]}
        )
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
