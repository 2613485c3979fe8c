"""Processes may open only a small number of files.

Found by:  limits: the soft limit of ulimit -n, below 1024; or the old default of 1024 on machines with 32
           CPUs or four GPUs, which need many workers.
No alarm:  1024 on a small machine, where this default is enough.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.base.errors import counted

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("limits",)
WHY = (
    "torch's data loader keeps a file open for each tensor that a worker sends: runs end with \"Too many "
    'open files" or "received 0 items of ancdata".'
)
FIX = "Raise the soft limit; a process may raise its own up to the hard one."
SOURCES = (
    "https://docs.pytorch.org/docs/stable/multiprocessing.html (file_descriptor)",
    "pytorch/pytorch#973",
    "https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_NOFILE)",
)
_DEFAULT = 1024
_ENOUGH = 4096
_MANY_CPUS, _MANY_GPUS = 32, 4


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the limit is low for this machine: a note where it is the usual default."""
    report.only_on("linux")
    soft = report.fact("limits.open_files_limit")
    if soft is None:
        if "open_files_limit" not in report.fact("limits.unlimited", ()):
            report.need("limits.open_files_limit")
        return
    cpus = int(report.fact("limits.effective_cpus", 0))
    gpus = len(report.devices("nvidia")) + len(report.devices("rocm"))
    is_large = cpus >= _MANY_CPUS or gpus >= _MANY_GPUS
    if soft >= _ENOUGH or (soft >= _DEFAULT and not is_large):
        return
    hard = report.fact("limits.open_files_hard_limit", 0)
    recommended = min(hard, 65536) or 65536
    message = f"a process may open only {soft} files (ulimit -n)"
    if soft >= _DEFAULT:
        and_gpus = f" and {counted(gpus, 'GPU')}" if gpus else ""
        message += f"; workers for {cpus} CPUs{and_gpus} need more"
    if recommended > soft:
        hint, command = "", f"ulimit -n {recommended}"
    else:
        hint, command = "as root: LimitNOFILE= of the service, or /etc/security/limits.conf", ""
    yield Symptom(
        message,
        hint=hint,
        command=command,
        evidence={"limits.open_files_limit": soft, "limits.open_files_hard_limit": hard},
        severity=Severity.NOTE if soft >= _DEFAULT else None,
    )
