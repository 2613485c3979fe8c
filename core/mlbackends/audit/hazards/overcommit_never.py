"""The kernel promises no more memory than there is.

Found by:  memory: vm.overcommit_memory is 2.
No alarm:  heuristic and always, which are the usual settings; what is mapped without the right to
           write, as CUDA reserves its addresses: that counts nothing.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("memory",)
WHY = (
    "Memory that a program may write counts as used before it is: a fork for a data loader's worker needs"
    " as much again as the whole process, and fails while most memory is free. Sites choose it so that"
    " an allocation fails in place of a program being killed."
)
MEND = (
    "Use 0 and limit programs by control groups; or keep 2, and raise vm.overcommit_ratio or add swap."
    " A line in sysctl.d keeps either."
)
SOURCES = (
    "https://docs.kernel.org/mm/overcommit-accounting.html",
    "https://man7.org/linux/man-pages/man5/proc_sys_vm.5.html (overcommit_memory)",
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
        hint="as root, until the next start",
        command="sysctl vm.overcommit_memory=0",
        evidence={"memory.overcommit": "never", "memory.overcommit_ratio": ratio},
    )
