"""The highest clock that is allowed is below what the processor guarantees.

Found by:  cpu: scaling_max_freq below the base frequency, or half of the highest where no base is known,
           each CPU held to its own (held_cpus).
No alarm:  the clock of this moment; a cap above the base frequency, which takes only boost away; small
           cores that are slower than the large ones.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("cpu",)
WHY = "A cap that was set to save power or to measure holds for everything that computes."
MEND = "Raise it to the processor's own highest clock."
SOURCES = ("https://docs.kernel.org/admin-guide/pm/cpufreq.html (scaling_max_freq)",)
_GIGA = 1e9


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for the CPUs whose cap is below their base frequency."""
    limit, most = report.fact("cpu.limit_hertz"), report.fact("cpu.max_hertz")
    if limit is None or most is None:
        raise DoesNotApply("the system does not show how clocks are limited")
    if capped := report.fact("cpu.held_cpus"):
        yield Symptom(
            f"the cap of CPUs {capped} is below their base frequency; the fastest are allowed"
            f" {limit / _GIGA:.1f} GHz, and this processor reaches {most / _GIGA:.1f} GHz",
            hint="as root, until the next start; the kernel keeps each CPU to its own highest",
            command=f"cpupower -c {capped} frequency-set -u {most / _GIGA:.2f}GHz",
            evidence={"cpu.held_cpus": capped, "cpu.limit_hertz": limit, "cpu.max_hertz": most},
        )
