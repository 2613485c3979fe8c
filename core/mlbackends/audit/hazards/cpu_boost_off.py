"""Clocks above the base frequency are switched off.

Found by:  cpu: intel_pstate's no_turbo, or cpufreq's boost.
No alarm:  a machine that does not show the switch, such as most virtual ones.
"""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
READS = ("cpu",)
WHY = "It makes measurements steady, and slows what runs in few threads most."
MEND = "Keep it off while you measure, and switch it on for work."
SOURCES = (
    "Linux, admin-guide/pm/cpufreq.rst, The boost File in sysfs; intel_pstate.rst, no_turbo",
)
_INTEL = "/sys/devices/system/cpu/intel_pstate/no_turbo"
_OTHERS = "/sys/devices/system/cpu/cpufreq/boost"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where boost is off."""
    boost = report.fact("cpu.boost")
    if boost is None:
        raise DoesNotApply("the system shows no switch for boost")
    if boost:
        return
    driver = str(report.fact("cpu.scaling_driver", ""))
    is_intel = driver.startswith("intel_")
    yield Symptom(
        f"boost is off ({driver or 'no driver'}): no core runs faster than its base frequency",
        hint="as root, until the next start",
        command=f"echo {0 if is_intel else 1} > {_INTEL if is_intel else _OTHERS}",
        evidence={"cpu.boost": False, "cpu.scaling_driver": driver},
    )
