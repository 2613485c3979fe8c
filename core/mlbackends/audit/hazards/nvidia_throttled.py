"""A GPU is throttled because of heat or its power supply."""

from mlbackends.audit.gpus import called, described_gpus
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

_BAD = {
    "hardware-thermal-slowdown": "too hot (hardware)",
    "software-thermal-slowdown": "too hot (driver)",
    "hardware-power-brake": "the power supply requested less power (power brake)",
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
            message = f"{called(gpu)} is throttled: {', '.join(bad)}"
            yield Symptom(message, evidence=evidence)
        elif "hardware-slowdown" in limits and "idle" not in limits:
            # Some drivers show it alone for a moment while the clocks change.
            message = f"{called(gpu)} is throttled by its hardware for an unknown reason"
            hint = "check again: it may have been a change of clocks; then check heat and power"
            yield Symptom(message, hint=hint, evidence=evidence, severity=Severity.NOTE)
