"""The C library is musl, for which torch has no wheels.

Found by:  host: the C library; packages: whether torch is installed all the same.
No alarm:  a machine that has torch, which somebody built for it.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("host", "packages")
WHY = (
    "Wheels for manylinux need glibc: pip finds no torch, no CUDA package and no triton here, and"
    " builds others from source for hours."
)
MEND = "Take an image with glibc, such as python:3.12-slim."
SOURCES = ("docker-library/python#341", "https://peps.python.org/pep-0656/")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the system is musl's and nobody has built torch for it."""
    libc = report.fact("host.libc")
    if libc is None:
        raise DoesNotApply("the system is neither glibc's nor musl's")
    if libc != "musl" or report.package("torch"):
        return
    yield Symptom(
        f"the C library is musl {report.fact('host.libc_version', '')}".rstrip()
        + f" ({report.fact('host.os_name', 'Linux')}), for which there are no wheels of torch",
        evidence={"host.libc": "musl", "host.libc_version": report.fact("host.libc_version", "")},
    )
