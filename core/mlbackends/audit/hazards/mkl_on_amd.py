"""Intel's MKL runs on an AMD CPU.

Found by:  the CPU's vendor, and the BLAS of numpy, scipy and torch.
No alarm:  it is only a note, since much of MKL is as fast there as other libraries; a copy that no package
           uses.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.base.tables import table

WHY, FIX = table("libraries/mkl_on_amd")["why"], table("libraries/mkl_on_amd")["action"]
SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("cpu", "mkl")
SOURCES = (
    "pytorch/builder#504",
    "pytorch/builder#460",
    "pytorch/builder#1245",
    "pytorch/pytorch#38412",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where a package uses it."""
    if report.fact("cpu.vendor") != "AMD":
        raise DoesNotApply("this is not an AMD CPU")
    used = [library for library in report.libraries("mkl") if library.used_by]
    users = {user for library in used for user in library.used_by}
    libraries = {"mkl.libraries.path": [library.path for library in used]} if used else {}
    blas_of = {}
    for probe in ("numpy", "scipy"):
        blas = str(report.fact(f"{probe}.blas", ""))
        if "mkl" in blas.lower():
            users.add(probe)
            blas_of[f"{probe}.blas"] = blas
    if users:
        yield Symptom(
            f"{' and '.join(sorted(users))} use{'s' if len(users) == 1 else ''} MKL on this AMD CPU"
            f" ({report.fact('cpu.model_name', 'unknown model')})",
            evidence={"cpu.vendor": "AMD", **libraries, **blas_of},
        )
