"""A cuDNN lacks some of its sub-libraries.

Found by:  cudnn: the files next to libcudnn, or its own answer.
No alarm:  nvidia-cudnn-jit, which has only two of them.
Severity:  a note for a copy that no process loads.
"""

from mlbackends.audit.environment import reinstall
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning
from mlbackends.audit.libraries import package_of

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("cudnn",)
WHY = (
    "libcudnn opens them at first use. Without one the process ends (`Unable to load any of "
    "{libcudnn_ops.so.9...}`), calls fail (CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED), or that of another "
    "cuDNN is loaded."
)
FIX = "Reinstall the whole cuDNN."
SOURCES = (
    "pytorch/pytorch#188892",
    "daswer123/xtts-finetune-webui#18",
    "JuliaGPU/CUDA.jl#3205",
    "ultralytics/ultralytics#17170",
)
WARNINGS = (("cudnn", "sub-library-missing"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each copy."""
    for warning in report.warnings("cudnn", "sub-library-missing"):
        copy = next(
            (library for library in report.libraries("cudnn") if library.path in warning.message),
            None,
        )
        from_wheel = copy is not None and copy.found_by == "site-packages" and copy.owner
        yield from_warning(
            warning,
            command=reinstall(report, *package_of(copy)) if copy and from_wheel else "",
            evidence={"cudnn.libraries.path": [copy.path]} if copy else {},
            severity=None if copy is None or copy.wins else Severity.NOTE,
        )
