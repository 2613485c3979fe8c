"""A variable makes ROCm take the GPU for another one.

Found by:  HSA_OVERRIDE_GFX_VERSION, and the instruction sets of the GPUs here.
No alarm:  the variable where it names what the GPU is.
"""

from typing import TYPE_CHECKING

from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import FactValue

SEVERITY = Severity.WARNING
READS = ("rocm",)
WHY = (
    "Code for another GPU may stop with a memory fault or compute wrongly; on a GPU that ROCm supports"
    " it only costs the code that was made for it."
)
MEND = "Unset it on GPUs that ROCm supports; elsewhere test what you compute, and know that it is luck."
SOURCES = (
    "ROCm/legacy-rocm-build#5238",
    "ROCm/MIOpen#3540",
    "ROCm/Tensile#1907",
    "ROCm installation, system requirements",
)
WARNINGS = (("rocm", "target-overridden"), ("rocm", "override-invalid"))
_VARIABLE = "HSA_OVERRIDE_GFX_VERSION"
_SUPPORTED = frozenset({
    "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1151",
    "gfx1200", "gfx1201",
})  # fmt: skip
"""Targets that the binaries of ROCm have code for."""


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for a value that misleads; a note where ROCm has no code for the GPU itself."""
    targets = {gpu.capability for gpu in report.devices("rocm") if gpu.capability}
    is_needed = bool(targets) and targets.isdisjoint(_SUPPORTED)
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
