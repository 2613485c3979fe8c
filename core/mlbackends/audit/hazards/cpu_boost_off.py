"""Boost clocks are switched off.

Found by:  cpu: intel_pstate's no_turbo, or cpufreq's boost; the nominal and the highest performance from
           ACPI.
No alarm:  a machine that does not show the setting, such as most virtual machines; a CPU whose highest
           performance is the nominal one, which loses nothing.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.NODE
READS = ("cpu",)
WHY = "It makes measurements reproducible, and slows down programs with few threads most."
FIX = "Keep it off while you measure, and switch it on for production."
SOURCES = (
    "https://docs.kernel.org/admin-guide/pm/cpufreq.html (boost)",
    "https://docs.kernel.org/admin-guide/pm/intel_pstate.html (no_turbo)",
    "https://docs.kernel.org/admin-guide/acpi/cppc_sysfs.html",
)
_INTEL = "/sys/devices/system/cpu/intel_pstate/no_turbo"
_GENERIC = "/sys/devices/system/cpu/cpufreq/boost"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where boost is off."""
    boost = report.fact("cpu.boost")
    if boost is None:
        raise DoesNotApply("the system has no boost setting")
    nominal = report.fact("cpu.nominal_performance")
    highest = report.fact("cpu.highest_performance")
    has_both = nominal is not None and highest is not None
    if boost or (has_both and highest <= nominal):
        return
    driver = str(report.fact("cpu.scaling_driver", ""))
    is_intel = driver.startswith("intel_")
    gain = f"; boost would add up to {highest / nominal - 1:.0%}" if has_both else ""
    yield Symptom(
        f"boost is off ({driver or 'no driver'}): no core runs faster than its base frequency{gain}",
        hint="as root, until the next reboot",
        command=f"echo {0 if is_intel else 1} > {_INTEL if is_intel else _GENERIC}",
        evidence={
            "cpu.boost": False,
            "cpu.scaling_driver": driver,
            **({"cpu.highest_performance": highest} if has_both else {}),
        },
    )
