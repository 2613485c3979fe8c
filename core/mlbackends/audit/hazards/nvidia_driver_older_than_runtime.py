"""NVIDIA's driver is older than a CUDA library or framework needs.

Found by:  the release of the kernel module, held to the oldest that runs programs of that CUDA major.
No alarm:  a driver of the same CUDA major that is older than the toolkit, for minor versions are
           compatible; a forward-compatibility libcuda in front, on a GPU that computed with it.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning
from mlbackends.model.records import Presence

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ()
WHY = (
    "The first CUDA call fails (cudaErrorInsufficientDriver, 35), and frameworks then compute on the"
    " processor or stop."
)
MEND = "Install a newer driver, or the build of the framework that is made for an older CUDA."
SOURCES = (
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    "pytorch/pytorch#4546",
    "sgl-project/sglang#11395",
    "lllyasviel/Fooocus#1313",
)
_PROBES = ("cuda_runtime", "torch", "jax", "tensorflow", "onnxruntime", "cupy", "cuda_toolkit")
WARNINGS = tuple((probe, "driver-too-old") for probe in _PROBES)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each library or framework that the driver is too old for."""
    driver = report.probe("cuda_driver")
    is_compatible = report.fact("cuda_driver.forward_compatibility", False)
    if is_compatible and driver is not None and driver.presence is Presence.USABLE:
        return
    release = report.fact("nvidia.driver_release", "")
    for probe in _PROBES:
        for warning in report.warnings(probe, "driver-too-old"):
            yield from_warning(warning, evidence={"nvidia.driver_release": release})
