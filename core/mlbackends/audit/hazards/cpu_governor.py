"""The processor is kept slow, or set to save power.

Found by:  cpu: the governor powersave with a driver that takes it at its word; energy_preference power
           with one that chooses for itself.
No alarm:  powersave under intel_pstate or amd-pstate-epp, where it is the default and clocks rise with
           the load; what the clock is now; schedutil, ondemand, conservative.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("cpu",)
WHY = "Everything that runs on the processor takes as long as its lowest clock makes it take."
MEND = "Choose another governor; a machine that computes has performance."
SOURCES = (
    "https://docs.kernel.org/admin-guide/pm/cpufreq.html (intel_pstate.html, amd-pstate.html)",
    "practice",
)
WARNINGS = (("cpu", "degraded"),)
_PREFERENCES = "/sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference"


def symptoms(report: ReportView) -> Symptoms:
    """Yield the governor that pins the lowest clock, and the preference that holds clocks down."""
    evidence = {
        f"cpu.{name}": report.fact(f"cpu.{name}", "")
        for name in ("governor", "scaling_driver", "energy_preference")
    }
    for warning in report.warnings("cpu", "degraded"):
        yield Symptom(
            warning.message,
            hint="as root, until the next start; tuned or a service keeps it",
            command="cpupower frequency-set -g performance",
            evidence=evidence,
        )
    if report.fact("cpu.energy_preference") == "power":
        yield Symptom(
            "the processor is set to save power (energy_performance_preference is power), which keeps"
            " clocks low under load",
            hint="as root, until the next start",
            # cpupower has --epp from Linux 6.3 on.
            command=f"echo performance | tee {_PREFERENCES}",
            evidence=evidence,
        )
