"""A broken row of a GPU's memory waits for a reset, or could not be replaced.

Found by:  NVML's row remapping: pending, failed.
No alarm:  rows that have been replaced, which are as good as before.
Severity:  an error for one that could not be replaced; a note for one that waits where the driver asks for no
           recovery.
"""

from mlbackends.audit.gpus import described_gpus
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("nvidia",)
WHY = (
    "Until the reset the pages of the broken row are out of use, and programs that run are not affected."
    " Where no spare row is left, the next error stops the program that meets it."
)
MEND = "Pending: drain the machine and reset the GPU. Failed: replace the GPU."
SOURCES = (
    "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html",
)
WARNINGS = (("nvidia", "row-remap-pending"), ("nvidia", "row-remap-failed"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU whose rows could not be replaced, and for each that waits."""
    states = {
        f"nvidia.devices.{gpu.index}.remapped_rows": gpu.facts["remapped_rows"]
        for gpu in described_gpus(report)
        if "remapped_rows" in gpu.facts
    }
    actions = {gpu.facts.get("recovery_action") for gpu in described_gpus(report)}
    waiting = Severity.NOTE if actions == {"none"} else None
    for severity, code in ((Severity.ERROR, "row-remap-failed"), (waiting, "row-remap-pending")):
        for warning in report.warnings("nvidia", code):
            yield from_warning(warning, evidence=states, severity=severity)
