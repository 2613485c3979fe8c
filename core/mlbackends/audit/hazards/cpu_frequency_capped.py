"""The highest clock that is allowed is below what the processor guarantees.

Found by:  cpu: scaling_max_freq below the base frequency, or half of the highest where no base is told,
           each kind of core held to its own.
No alarm:  the clock of this moment; a cap above the base frequency, which takes only boost away; small
           cores that are slower than the large ones.
"""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
READS = ("cpu",)
WHY = "A cap that was set to save power or to measure holds for everything that computes."
MEND = "Raise it to the processor's own highest clock."
SOURCES = ("https://docs.kernel.org/admin-guide/pm/cpufreq.html (scaling_max_freq)",)
_GIGA = 1e9


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each kind of core whose cap is below its base frequency."""
    every = {
        name: report.fact(f"cpu.{name}") for name in ("limit_hertz", "max_hertz", "base_hertz")
    }
    kinds = [
        kind for kind in report.fact("cpu.kinds", []) if {"limit_hertz", "max_hertz"} <= {*kind}
    ]
    if not kinds and None in (every["limit_hertz"], every["max_hertz"]):
        raise DoesNotApply("the system does not show how clocks are limited")
    for kind in kinds or [every]:
        limit, most = int(kind["limit_hertz"]), int(kind["max_hertz"])
        if limit >= min(kind.get("base_hertz") or most // 2, most):
            continue
        which, chosen = "this processor reaches", ""
        if cpus := kind.get("cpus"):
            which, chosen = f"CPUs {cpus} reach", f" -c {cpus}"
        yield Symptom(
            f"clocks are capped at {limit / _GIGA:.1f} GHz, and {which} {most / _GIGA:.1f} GHz",
            hint="as root, until the next start",
            command=f"cpupower{chosen} frequency-set -u {most / _GIGA:.2f}GHz",
            evidence={"cpu.limit_hertz": limit, "cpu.max_hertz": most},
        )
