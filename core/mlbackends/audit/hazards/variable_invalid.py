"""A variable holds a value that is ignored or refused.

Found by:  every probe that knows which values its library takes.
No alarm:  variables that another code speaks for: CUDA_VISIBLE_DEVICES, LD_PRELOAD, the loader's
           folders.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "The library goes on with its default and rarely says so: what somebody set, and believes to be in"
    " effect, is not."
)
MEND = "Correct the value, or unset the variable."
SOURCES = ("the documentation of the library that reads it, which the probe's own page names",)
_CODE = "override-invalid"
_PROBES = (
    "accelerate", "blis", "compilers", "cpu", "cublas", "cuda_toolkit", "environment", "mkl",
    "onednn", "openblas", "openmp", "triton", "xpu",
)  # fmt: skip
WARNINGS = tuple((probe, _CODE) for probe in _PROBES)
_ELSEWHERE = ("LD_PRELOAD ", "LD_LIBRARY_PATH ", "DYLD_LIBRARY_PATH ")


def symptoms(report: ReportView) -> Symptoms:
    """Yield what the probes found."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            if not warning.message.startswith(_ELSEWHERE):
                yield from_warning(warning, evidence={f"{probe}.warnings.code": [code]})
