"""The variables that choose AMD GPUs leave none, or contradict each other.

Found by:  ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES, applied in that order.
No alarm:  a list that leaves some of the GPUs.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("rocm",)
WHY = (
    "HIP counts from zero what the variable before has left, so an index that was right hides all."
)
MEND = "Set one of them, with indices from 0."
SOURCES = (
    "https://rocm.docs.amd.com/en/docs-6.1.2/conceptual/gpu-isolation.html",
    "ROCm/clr, rocclr/device/rocm/rocdevice.cpp (HIP's list, else CUDA's)",
)
WARNINGS = (("rocm", "hidden-by-variable"), ("rocm", "conflict"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each thing that is wrong with them."""
    names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    values = {name: value for name in names if (value := report.variable(name)) is not None}
    for _, code in WARNINGS:
        for warning in report.warnings("rocm", code):
            yield from_warning(
                warning,
                evidence={f"environment.variables.{name}": value for name, value in values.items()},
            )
