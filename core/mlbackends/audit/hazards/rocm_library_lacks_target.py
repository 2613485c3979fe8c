"""A library of ROCm has no code for the GPU that is here.

Found by:  the files of GPU code beside rocBLAS, hipBLASLt and others, held to the GPUs' instruction sets.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ()
WHY = (
    "The first call stops the program: rocBLAS aborts where it cannot read its kernels for the GPU."
)
MEND = "Install a build that has the target, such as AMD's wheels for that family of GPUs."
SOURCES = ("ROCm/rocBLAS#1299", "ollama/ollama#2823")
_PROBES = ("rocblas", "hipblaslt")
WARNINGS = tuple((probe, "unsupported-hardware") for probe in _PROBES)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each library and target that it lacks."""
    for probe in _PROBES:
        for warning in report.warnings(probe, "unsupported-hardware"):
            yield from_warning(
                warning, evidence={f"{probe}.targets": report.fact(f"{probe}.targets", [])}
            )
