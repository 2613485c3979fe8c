"""A package is built for an accelerator, but computes on the CPU."""

from mlbackends.audit.environment import FRAMEWORKS, install
from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

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
