"""The kernel promises no more memory than there is.

Found by:  memory: vm.overcommit_memory is 2.
No alarm:  heuristic and always, which are the usual settings.
"""

from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
READS = ("memory",)
WHY = (
    "What is reserved counts as used: a fork for a data loader's worker needs as much again as the whole"
    " process, and CUDA's reservations count too. Both fail while most memory is free."
)
MEND = "Use 0, and limit programs by control groups; vm.overcommit_memory in sysctl.d keeps it."
SOURCES = (
    "aws-samples/aws-eda-slurm-cluster#38",
    "pytorch/pytorch#137393",
    "Linux, mm/overcommit-accounting.rst",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where it is never."""
    report.only_on("linux")
    if report.need("memory.overcommit") != "never":
        return
    ratio = report.fact("memory.overcommit_ratio")
    share = f", and {ratio} % of memory may be promised" if ratio is not None else ""
    yield Symptom(
        f"vm.overcommit_memory is 2{share}",
        command="sysctl vm.overcommit_memory=0",
        evidence={"memory.overcommit": "never", "memory.overcommit_ratio": ratio},
    )
