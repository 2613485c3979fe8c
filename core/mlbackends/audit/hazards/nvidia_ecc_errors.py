"""Uncorrected memory errors: this GPU needs recovery."""

from mlbackends.audit.gpus import called, described_gpus
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms
from mlbackends.base.errors import counted


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU with such errors, unless the driver requests no action."""
    for gpu in described_gpus(report):
        count = gpu.volatile.get("ecc_uncorrected_since_load")
        action = gpu.facts.get("recovery_action")
        is_row = gpu.facts.get("row_remap_pending") or gpu.facts.get("row_remap_failed")
        if not isinstance(count, int) or not count or is_row or action == "none":
            continue
        errors = counted(count, "uncorrected memory error")
        message = f"{called(gpu)} had {errors} since its driver was loaded"
        severity, hint = None, ""
        if action is not None:
            message += f", and requests recovery: {action}"
        elif "remapped_rows" in gpu.facts:
            severity = Severity.NOTE
            hint = "the driver is too old to report whether a reset is needed; look for Xid 95 and 154"
        else:
            severity = Severity.WARNING
            hint = "drain the machine and reset the GPU, so that the page is retired"
        yield Symptom(
            message,
            hint=hint,
            evidence={
                f"nvidia.devices.{gpu.index}.ecc_uncorrected_since_load": count,
                **({f"nvidia.devices.{gpu.index}.recovery_action": action} if action else {}),
            },
            severity=severity,
        )
