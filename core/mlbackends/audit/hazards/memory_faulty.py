"""Memory is faulty.

Found by:  memory: HardwareCorrupted in /proc/meminfo, which the kernel took out of use.
No alarm:  errors that were corrected and left the page in use.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("memory",)
WHY = (
    "Pages with errors that could not be corrected, or were corrected too often, are taken out of use; a"
    " process that uses one with an uncorrectable error is sent SIGBUS."
)
MEND = "Find the module in the kernel's log of machine checks, and replace it."
SOURCES = (
    "https://docs.kernel.org/filesystems/proc.html (HardwareCorrupted)",
    "https://docs.kernel.org/mm/hwpoison.html",
    "Linux, mm/memory-failure.c (soft_offline_page)",
)
WARNINGS = (("memory", "degraded"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield what the kernel counted."""
    corrupted = report.fact("memory.corrupted_bytes", 0)
    for warning in report.warnings("memory", "degraded"):
        yield from_warning(warning, evidence={"memory.corrupted_bytes": corrupted})
