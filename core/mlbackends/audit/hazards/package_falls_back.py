"""A package is built for an accelerator, but computes on the CPU.

Found by:  its accelerators were started in a child process: the providers of onnxruntime, the plugins of
           jax, the GPUs of tensorflow, faiss and CTranslate2, the libraries of bitsandbytes and llama.cpp.
No alarm:  only a note on a machine without an accelerator, unless a library is missing.
"""

from mlbackends.audit.environment import FRAMEWORKS, install
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ()
WHY = "It runs 10 to 100 times slower than expected, and reports that only in a log, or not at all."
FIX = "Install the libraries that the message names, in the versions that the build needs."
SOURCES = (
    "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html (requirements)",
    "microsoft/onnxruntime#21684",
    "SYSTRAN/faster-whisper#1431",
    "tensorflow/tensorflow#66987",
    "https://docs.jax.dev/en/latest/installation.html",
)
WARNINGS = tuple((name, "falls-back") for name in FRAMEWORKS)
_DEVICES = ("nvidia", "rocm", "xpu")
#: What brings the libraries that a package opens by name.
_EXTRAS = {"onnxruntime-gpu": "onnxruntime-gpu[cuda,cudnn]", "tensorflow": "tensorflow[and-cuda]"}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    has_device = any(report.devices(name) for name in _DEVICES)
    for name in FRAMEWORKS:
        for warning in report.warnings(name, "falls-back"):
            extra = _EXTRAS.get(report.fact(f"{name}.distribution", ""), "")
            lacks_file = "cannot open" in warning.message
            yield from_warning(
                warning,
                command=install(report, extra) if extra and lacks_file else "",
                evidence={f"{name}.accelerators": report.fact(f"{name}.accelerators")},
                severity=None if has_device or lacks_file else Severity.NOTE,
            )
