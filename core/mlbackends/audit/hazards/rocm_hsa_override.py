"""A variable makes ROCm treat the GPU as another model."""

from typing import TYPE_CHECKING

from mlbackends.audit.gpus import ROCBLAS_TARGETS
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import FactValue

WARNINGS = (("rocm", "target-overridden"), ("rocm", "override-invalid"))
_VARIABLE = "HSA_OVERRIDE_GFX_VERSION"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for a value that misleads; a note where ROCm has no code for the GPU itself."""
    targets = {gpu.capability for gpu in report.devices("rocm") if gpu.capability}
    is_needed = bool(targets) and targets.isdisjoint(report.fact("rocblas.targets", ROCBLAS_TARGETS))
    evidence: dict[str, FactValue] = {
        f"rocm.environment.{_VARIABLE}": report.variable(_VARIABLE) or "",
        "rocm.targets": sorted(targets),
    }
    for _, code in WARNINGS:
        for warning in report.warnings("rocm", code):
            is_note = is_needed and code == "target-overridden"
            yield Symptom(
                warning.message,
                hint="" if is_note else warning.hint,
                command="" if is_note else f"unset {_VARIABLE}",
                evidence=evidence,
                severity=Severity.NOTE if is_note else None,
            )
