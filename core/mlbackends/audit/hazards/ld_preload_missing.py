"""LD_PRELOAD names a file that is not there.

Found by:  environment: an absolute path in LD_PRELOAD without a file.
No alarm:  a bare name, which the loader searches for; a path with $LIB or $ORIGIN.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "Each program prints an error when it starts, which spoils what other programs read of it; and the"
    " allocator or runtime that somebody measured with is not in use."
)
MEND = "Correct the path, or unset the variable."
SOURCES = ("https://man7.org/linux/man-pages/man8/ld.so.8.html (LD_PRELOAD)",)
WARNINGS = (("environment", "override-invalid"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each file that is missing."""
    for warning in report.warnings("environment", "override-invalid"):
        if warning.message.startswith("LD_PRELOAD "):
            value = report.variable("LD_PRELOAD") or ""
            yield Symptom(
                warning.message,
                command="unset LD_PRELOAD",
                evidence={"environment.variables.LD_PRELOAD": value},
            )
