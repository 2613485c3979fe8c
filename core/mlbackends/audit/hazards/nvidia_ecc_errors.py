"""The memory of a GPU had errors that could not be corrected, and the GPU has not got over them.

Found by:  NVML's count of uncorrected errors since the driver was loaded, and the recovery action that it
           asks for.
No alarm:  corrected errors; errors after which the driver asks for nothing: their rows are remapped, or will
           be; rows that wait for a reset or could not be remapped, of which nvidia-row-remap tells.
Severity:  a warning for GPUs without row remapping, a note where the driver is too old to say.
"""

from mlbackends.audit.gpus import called, described_gpus
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.base.errors import counted

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = (
    "The program that met the error was stopped; until the GPU has recovered, the next one may be."
)
FIX = "Drain the machine and do what the driver asks for; look for Xid 48, 94, 95 and 154 in the kernel log."
SOURCES = (
    "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html",
    "https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGpuRecoveryAction_t)",
    "leptonai/gpud#108",
)
WARNINGS = (("nvidia", "ecc-errors"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU with such errors that asks for something, or cannot say whether it does."""
    for gpu in described_gpus(report):
        count = gpu.volatile.get("ecc_uncorrected_since_load")
        action = gpu.facts.get("recovery_action")
        is_row = gpu.facts.get("row_remap_pending") or gpu.facts.get("row_remap_failed")
        if not isinstance(count, int) or not count or is_row or action == "none":
            continue
        errors = counted(count, "memory error")
        message = f"{called(gpu)} had {errors} since its driver was loaded, not corrected"
        severity, hint = None, ""
        if action is not None:
            message += f", and asks for recovery: {action}"
        elif "remapped_rows" in gpu.facts:
            severity = Severity.NOTE
            hint = "the driver is too old to say whether it needs a reset; look for Xid 95 and 154"
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
