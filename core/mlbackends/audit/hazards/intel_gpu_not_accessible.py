"""This user may not open the Intel GPU's render node.

Found by:  the node in /dev/dri of each GPU, and whether this user may open it; Level Zero's own error.
No alarm:  a machine without a Level Zero loader, where nothing would use the GPU.
"""

from mlbackends.audit.gpus import called
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("xpu",)
WHY = "Level Zero then finds no device, and torch.xpu reports none."
FIX = "Add the user to the group of the render nodes; pass --device=/dev/dri and the group to a container."
SOURCES = ("intel/llm-scaler#385", "intel/llvm#19520")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU whose node is closed."""
    gpus = [device for device in report.devices("xpu") if device.kind == "xpu"]
    if not gpus:
        raise DoesNotApply("there is no Intel GPU")
    if not report.libraries("xpu"):
        raise DoesNotApply("no Level Zero loader is installed")
    for gpu in gpus:
        for reason in gpu.reasons:
            if reason.code == "permission-denied":
                yield Symptom(
                    f"{reason.message}; it belongs to {called(gpu)}",
                    hint=reason.hint,
                    evidence={f"xpu.devices.{gpu.index}.reasons.code": [reason.code]},
                )
