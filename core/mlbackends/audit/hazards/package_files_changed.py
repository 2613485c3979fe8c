"""A package's files have another version than its metadata.

Found by:  the probes of frameworks: __version__ in the files, compared with the dist-info.
No alarm:  a local part such as +cpu that only the files have; an editable install of the same release.
"""

from mlbackends.audit.environment import FRAMEWORKS, reinstall
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("packages",)
WHY = "Something overwrote its files: pip reports one version, and another one runs."
FIX = "Reinstall the package."
SOURCES = (
    "NVIDIA/cutlass#3259",
    "https://packaging.python.org/en/latest/specifications/recording-installed-packages/",
)
WARNINGS = tuple((name, "metadata-mismatch") for name in FRAMEWORKS)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            name = report.fact(f"{probe}.distribution", "")
            yield from_warning(
                warning,
                command=reinstall(report, name, report.package(name)) if name else "",
                evidence={f"{probe}.version": report.version(probe)},
            )
