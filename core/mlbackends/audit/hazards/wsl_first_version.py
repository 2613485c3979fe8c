"""This is the first version of the Windows Subsystem for Linux.

Found by:  host: the kernel's release, which ends in -Microsoft.
No alarm:  the second version, which has a kernel of its own and reaches the GPU.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("host",)
WHY = "CUDA works in the second version alone; the first translates calls, and much work on files is slow."
MEND = (
    "Convert the distribution, after a copy of what it holds: Microsoft warns that this can fail."
)
SOURCES = (
    "https://learn.microsoft.com/windows/wsl/compare-versions",
    "https://learn.microsoft.com/windows/wsl/basic-commands (--set-version)",
    "https://docs.nvidia.com/cuda/wsl-user-guide/",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one in the first version."""
    version = report.fact("host.wsl_version")
    if version is None:
        raise DoesNotApply("this is not the Windows Subsystem for Linux")
    if version != 1:
        return
    yield Symptom(
        f"this is WSL 1 (kernel {report.fact('host.kernel_release', 'unknown')}), in which no GPU works",
        hint="in Windows; `wsl -l` tells the distribution's name",
        command="wsl --set-version DISTRIBUTION 2",
        evidence={
            "host.wsl_version": 1,
            "host.kernel_release": report.fact("host.kernel_release", ""),
        },
    )
