"""The compute mode of a GPU lets no CUDA program use it.

Found by:  NVML's compute mode.
No alarm:  exclusive-process, which schedulers set on purpose.
"""

from mlbackends.audit.gpus import described_gpus
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = "No CUDA context can be created on it: programs get 46 (cudaErrorDevicesUnavailable)."
MEND = "Set the compute mode to DEFAULT, unless the GPU is kept for displays."
SOURCES = (
    "https://docs.nvidia.com/deploy/nvml-api/ (nvmlComputeMode_t; nvidia-smi(1), -c)",
    "https://docs.nvidia.com/cuda/cuda-runtime-api/ (cudaErrorDevicesUnavailable)",
)
WARNINGS = (("nvidia", "compute-prohibited"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each such GPU."""
    prohibited = [
        gpu.index for gpu in described_gpus(report) if gpu.facts.get("compute_mode") == "prohibited"
    ]
    for index, warning in zip(
        prohibited, report.warnings("nvidia", "compute-prohibited"), strict=False
    ):
        yield Symptom(
            warning.message,
            command=f"sudo nvidia-smi -i {index} -c DEFAULT",
            evidence={f"nvidia.devices.{index}.compute_mode": "prohibited"},
        )
