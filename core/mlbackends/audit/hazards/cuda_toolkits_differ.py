"""Variables and PATH name different CUDA toolkits.

Found by:  cuda_toolkit: the toolkit of the variable, of nvcc on PATH, and its headers; environment:
           CUDA_HOME and CUDA_PATH.
No alarm:  several toolkits side by side, of which all names mean one.
"""

from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
READS = ("cuda_toolkit",)
WHY = "Extensions are compiled with the headers of one toolkit and the compiler of another."
MEND = "Let PATH, CUDA_HOME and CUDA_PATH name one toolkit."
SOURCES = (
    "pytorch/pytorch, torch.utils.cpp_extension",
    "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
)
WARNINGS = (("cuda_toolkit", "conflict"), ("environment", "conflict"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each contradiction."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            yield from_warning(
                warning, evidence={"cuda_toolkit.version": report.version("cuda_toolkit")}
            )
