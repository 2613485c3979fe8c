"""A GPU on the bus does not respond."""

from mlbackends.audit.gpus import called, described_gpus, nvidia_gpus, see_part_of_machine
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms, from_warning
from mlbackends.model.records import Presence

_CODES = ("gpu-lost", "reset-required", "timed-out")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU that NVML lost, and for each that it does not count."""
    gpus = nvidia_gpus(report)
    probe_report = report.probe("nvidia")
    counted = report.fact("nvidia.gpu_count")
    lost = [(gpu, reason) for gpu in gpus for reason in gpu.reasons if reason.code in _CODES]
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
