"""The highest clock that is allowed is below what the processor guarantees.

Found by:  cpu: scaling_max_freq below the base frequency, or half of the highest where no base is told.
No alarm:  the clock of this moment; a cap above the base frequency, which takes only boost away.
"""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
READS = ("cpu",)
WHY = "A cap that was set to save power or to measure holds for everything that computes."
MEND = "Raise it to the processor's own highest clock."
SOURCES = ("Linux, admin-guide/pm/cpufreq.rst, scaling_max_freq",)
_GIGA = 1e9


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the cap is below the base frequency."""
    limit, most = report.fact("cpu.limit_hertz"), report.fact("cpu.max_hertz")
    if limit is None or most is None:
        raise DoesNotApply("the system does not show how clocks are limited")
    base = report.fact("cpu.base_hertz", most // 2)
    if limit >= base:
        return
    yield Symptom(
        f"clocks are capped at {limit / _GIGA:.1f} GHz, and this processor reaches"
        f" {most / _GIGA:.1f} GHz",
        hint="as root, until the next start",
        command=f"cpupower frequency-set -u {most / _GIGA:.2f}GHz",
        evidence={"cpu.limit_hertz": limit, "cpu.max_hertz": most},
    )
