"""What the GPU of a Mac cannot do runs on the processor, silently.

Found by:  environment: PYTORCH_ENABLE_MPS_FALLBACK on macOS.
No alarm:  the variable elsewhere, where nobody reads it.
"""

from mlbackends.audit.environment import effects, is_number
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("environment", "host")
WHY = (
    "Each such operation copies its tensors to the processor and back. One in an inner loop can cost"
    " more than the GPU gains, and is warned of once."
)
MEND = "Unset it to see which operations fall back; keep it where none of them is in a loop."
SOURCES = (
    "https://docs.pytorch.org/docs/stable/mps_environment_variables.html",
    "pytorch/pytorch, aten/src/ATen/mps/MPSFallback.mm",
    "pytorch/pytorch#77764",
)
_TABLE = {
    "PYTORCH_ENABLE_MPS_FALLBACK": (
        is_number,
        "operations that MPS lacks run on the processor, and their tensors travel",
    )
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where it is on."""
    report.only_on("darwin")
    yield from effects(report, _TABLE)
