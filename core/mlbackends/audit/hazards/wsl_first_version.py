"""This is the first version of the Windows Subsystem for Linux.

Found by:  host: the kernel's release, which ends in -Microsoft.
No alarm:  the second version, which has a kernel of its own and reaches the GPU.
"""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.ERROR
READS = ("host",)
WHY = "No GPU can be reached from it, and it translates calls: files and processes are slow."
MEND = "Convert the distribution; that keeps its files."
SOURCES = (
    "https://learn.microsoft.com/windows/wsl/compare-versions",
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
