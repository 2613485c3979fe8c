"""The CPU quota stops these processes again and again.

Found by:  limits: cpu.stat, where more than 5 % of at least 100 periods were throttled.
No alarm:  a group that is at rest; one that was stopped in a few periods.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("limits",)
WHY = (
    "Within each period all threads are stopped until the next one begins. Latencies grow by whole"
    " periods, and every further thread makes it worse."
)
MEND = "Start fewer threads than the quota has CPUs, or raise the quota."
SOURCES = ("ollama/ollama#17916", "https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.stat)")
WARNINGS = (("limits", "throttled"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield what the probe counted."""
    for warning in report.warnings("limits", "throttled"):
        yield from_warning(
            warning,
            evidence={
                name: report.fact(name, 0)
                for name in ("limits.cpu_periods", "limits.cpu_throttled_periods")
            },
        )
