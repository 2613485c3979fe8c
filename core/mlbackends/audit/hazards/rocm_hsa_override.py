"""A variable makes ROCm treat the GPU as another model.

Found by:  HSA_OVERRIDE_GFX_VERSION, and the instruction sets of the GPUs.
No alarm:  the variable with the GPU's real instruction set.
Severity:  a note for GPUs that ROCm has no code for, by the installed rocBLAS, otherwise by ROCm 7.1's.
"""

from typing import TYPE_CHECKING

from mlbackends.audit.gpus import ROCBLAS_TARGETS
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import FactValue

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("rocm",)
WHY = (
    "It is for debugging: code for another GPU may stop with a memory fault, and on a GPU that ROCm has "
    "code for, that code is not used. One override applies to all GPUs of the machine."
)
FIX = "Unset it on GPUs that ROCm supports; on others test your results, since nothing guarantees them."
SOURCES = (
    "ROCm/legacy-rocm-build#5238",
    "ROCm/rocm-systems#5686",
    "ROCm/rocm-libraries, projects/rocblas/CMakeLists.txt, TARGET_LIST_ROCM_7.1",
)
WARNINGS = (("rocm", "target-overridden"), ("rocm", "override-invalid"))
_VARIABLE = "HSA_OVERRIDE_GFX_VERSION"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for a value that misleads; a note where ROCm has no code for the GPU itself."""
    targets = {gpu.capability for gpu in report.devices("rocm") if gpu.capability}
    is_needed = bool(targets) and targets.isdisjoint(
        report.fact("rocblas.targets", ROCBLAS_TARGETS)
    )
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
