"""The memory of a GPU had errors that could not be corrected.

Found by:  NVML's count of uncorrected errors since the driver was loaded.
No alarm:  corrected errors; errors of former boots, whose rows have been replaced since.
"""

from mlbackends.audit.gpus import answering
from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.ERROR
READS = ("nvidia",)
WHY = "The program that met the error was stopped or computed with broken values, and the next may be."
MEND = "Drain the machine and reset the GPU, so that the row is replaced; if they come back, replace it."
SOURCES = ("NVIDIA GPU Memory Error Management", "leptonai/gpud#108", "leptonai/gpud#987")
WARNINGS = (("nvidia", "ecc-errors"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each GPU with such errors."""
    gpus = answering(report)
    counts = {
        f"nvidia.devices.{gpu.index}.ecc_uncorrected_since_load": count
        for gpu in gpus
        if (count := gpu.volatile.get("ecc_uncorrected_since_load"))
    }
    for warning in report.warnings("nvidia", "ecc-errors"):
        yield from_warning(warning, evidence=counts)
