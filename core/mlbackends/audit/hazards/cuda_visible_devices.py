"""CUDA_VISIBLE_DEVICES hides GPUs or selects others than intended.

Found by:  nvidia: the variable, compared with the existing GPUs: empty, -1, a duplicate, an unknown index or
           UUID, words; a CUDA_DEVICE_ORDER that is not an order.
No alarm:  the variable on a machine without an NVIDIA GPU; a list that leaves out some of the GPUs.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("nvidia",)
WHY = (
    "CUDA reads the list up to the first invalid entry and silently ignores the rest; a duplicate entry "
    "hides every GPU."
)
FIX = "Unset it, or list devices from 0 on, or their UUIDs as printed by `nvidia-smi -L`."
SOURCES = (
    "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html",
    "pytorch/pytorch, torch/cuda/__init__.py, _parse_visible_devices",
    "pytorch/examples#115",
)
WARNINGS = (("nvidia", "hidden-by-variable"), ("nvidia", "override-invalid"))
_COMMANDS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def symptoms(report: ReportView) -> Symptoms:
    """Yield what the probe found wrong with the list and with the order."""
    variables = report.fact("nvidia.environment", {})
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            name = next((name for name in _COMMANDS if warning.message.startswith(name)), "")
            yield Symptom(
                warning.message,
                hint=warning.hint if not warning.hint.startswith("unset ") else "",
                command=f"unset {name}" if name else "",
                evidence={
                    f"nvidia.environment.{name}": variables.get(name, ""),
                    "nvidia.pci_gpu_count": report.fact("nvidia.pci_gpu_count", 0),
                },
            )
