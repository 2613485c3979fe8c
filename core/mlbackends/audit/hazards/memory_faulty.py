"""Memory is faulty.

Found by:  memory: HardwareCorrupted in /proc/meminfo, which the kernel took out of use.
No alarm:  errors that were corrected, which leave no page out of use.
"""

from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.ERROR
READS = ("memory",)
WHY = (
    "The kernel kills what uses a page with an uncorrectable error, and a module that has one bad page"
    " soon has more."
)
MEND = "Find the module in the kernel's log of machine checks, and replace it."
SOURCES = ("https://docs.kernel.org/filesystems/proc.html (HardwareCorrupted; mm/hwpoison.html)",)
WARNINGS = (("memory", "degraded"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield what the kernel counted."""
    corrupted = report.fact("memory.corrupted_bytes", 0)
    for warning in report.warnings("memory", "degraded"):
        yield from_warning(warning, evidence={"memory.corrupted_bytes": corrupted})
