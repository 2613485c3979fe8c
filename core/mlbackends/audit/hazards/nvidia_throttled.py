"""A GPU is slowed down by heat or by its power supply.

Found by:  NVML's reasons for the clocks: thermal slowdown of hardware or software, power brake, and a
           hardware slowdown of a GPU that is not idle.
No alarm:  idle; a software power cap, which is how a busy GPU runs; clocks that were set; a display's.
"""

from mlbackends.audit.gpus import called, described_gpus
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = (
    "It computes at a fraction of its speed, and in a job of many GPUs all the others wait for it;"
    " no program is notified."
)
FIX = "Look at the cooling, the power cables and the power supply of the machine."
SOURCES = (
    "https://docs.nvidia.com/deploy/nvml-api/ (nvmlClocksEventReasons)",
    "NVIDIA/NVSentinel#890",
)
_BAD = {
    "hardware-thermal-slowdown": "it is too hot (hardware)",
    "software-thermal-slowdown": "it is too hot (driver)",
    "hardware-power-brake": "the power supply has asked for less (power brake)",
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU that is slowed down now."""
    for gpu in described_gpus(report):
        limits = gpu.volatile.get("clock_limits")
        if not isinstance(limits, list):
            continue
        evidence = {
            f"nvidia.devices.{gpu.index}.{name}": gpu.volatile[name]
            for name in ("clock_limits", "temperature_celsius", "power_watts", "sm_clock_hertz")
            if name in gpu.volatile
        }
        bad = [words for limit, words in _BAD.items() if limit in limits]
        if bad:
            message = f"{called(gpu)} is slowed down: {', '.join(bad)}"
            yield Symptom(message, evidence=evidence)
        elif "hardware-slowdown" in limits and "idle" not in limits:
            # Some drivers show it alone for a moment while the clocks change.
            message = f"{called(gpu)} is slowed down by its hardware, which does not say why"
            hint = "look again: it may have been a change of clocks; then look at heat and power"
            yield Symptom(message, hint=hint, evidence=evidence, severity=Severity.NOTE)
