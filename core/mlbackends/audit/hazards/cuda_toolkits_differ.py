"""Variables and PATH name different CUDA toolkits.

Found by:  cuda_toolkit: the toolkit of the variable, of nvcc on PATH, and its headers; environment:
           CUDA_HOME and CUDA_PATH.
No alarm:  several toolkits side by side, of which all names mean one.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("cuda_toolkit",)
WHY = (
    "Build tools take different ones: torch's extensions CUDA_HOME, then CUDA_PATH, then nvcc on PATH;"
    " CMake its compiler's, then CUDA_PATH. Headers of another release than nvcc's fail, or are wrong."
)
MEND = "Let PATH, CUDA_HOME and CUDA_PATH name one toolkit."
SOURCES = (
    "pytorch/pytorch, torch/utils/cpp_extension.py, _find_cuda_home",
    "https://cmake.org/cmake/help/latest/module/FindCUDAToolkit.html (Search Behavior)",
)
WARNINGS = (("cuda_toolkit", "conflict"), ("environment", "conflict"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each contradiction."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            yield from_warning(
                warning, evidence={"cuda_toolkit.version": report.version("cuda_toolkit")}
            )
