"""PATH has another version of a CUDA library than the installed wheels."""

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.libraries import described

_PROBES = (
    "cuda_runtime", "cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nvrtc", "nvjitlink",
)  # fmt: skip


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for the first library of which copies differ."""
    report.only_on("win32")
    for probe in _PROBES:
        copies = [library for library in report.libraries(probe) if library.version and not library.reasons]
        for wheel in (copy for copy in copies if copy.found_by == "site-packages"):
            for other in (copy for copy in copies if copy.found_by == "PATH"):
                if other.soname == wheel.soname and other.version != wheel.version:
                    yield Symptom(
                        f"PATH has {described(other)}, and an installed wheel {described(wheel)}",
                        evidence={f"{probe}.libraries.version": [other.version, wheel.version]},
                    )
                    return
