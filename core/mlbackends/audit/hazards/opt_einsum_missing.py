"""torch is installed without opt_einsum.

Found by:  the distributions: torch is one, opt-einsum is none.
No alarm:  it is a note: torch.einsum works without it.
"""

from mlbackends.audit.environment import install
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.host.python.requirements import satisfies

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("torch", "opt_einsum")
WHY = (
    "torch.einsum with three or more tensors then multiplies them from left to right, which may take"
    " many times the work and memory of the best order."
)
MEND = "Install opt_einsum; torch finds it by itself."
SOURCES = (
    "pytorch/pytorch, torch/backends/opt_einsum/__init__.py",
    "pytorch/pytorch#87199",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where torch could use it and it is not there."""
    torch = report.version("torch")
    if not torch or satisfies(torch, "<1.13"):
        raise DoesNotApply("no torch that would use it is installed")
    if not report.version("opt_einsum") and report.fact("opt_einsum.location") is None:
        yield Symptom(
            f"torch {torch} is installed, and opt_einsum is not",
            command=install(report, "opt_einsum"),
            evidence={"torch.version": torch},
        )
