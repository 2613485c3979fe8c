"""Programs load a forward-compatibility libcuda that this GPU or driver does not support.

Found by:  the libcuda.so.1 that programs load is in a compat folder, and the GPU is a GeForce, or the kernel
           module is newer than it; CUDA's error 804.
No alarm:  a compat folder after the driver's own file; a data-center GPU with an older driver, for which it
           is made; a GPU that computed with it.
"""

from mlbackends.audit.hazard import (
    DoesNotApply,
    Problem,
    ReportView,
    Severity,
    Symptom,
    Symptoms,
    from_warning,
)
from mlbackends.model.records import FactValue, Presence

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("cuda_driver",)
WHY = (
    "cuInit returns 804 (forward compatibility was attempted on non supported HW) or 803, and no CUDA "
    "program starts, although the driver itself works."
)
FIX = "Remove the compat folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d, then run ldconfig."
SOURCES = (
    "https://docs.nvidia.com/deploy/cuda-compatibility/ (forward compatibility)",
    "NVIDIA/nvidia-docker#1294",
    "NVIDIA/nvidia-docker#1515",
    "NVIDIA/nvidia-container-toolkit#291",
)
_CONSUMER = ("GeForce", "TITAN")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for the copy that programs get, where it cannot work here."""
    driver = report.probe("cuda_driver")
    winner = next((one for one in report.libraries("cuda_driver") if one.wins), None)
    if driver is None or winner is None or not winner.facts.get("forward_compatibility"):
        raise DoesNotApply("programs load no forward-compatibility libcuda")
    if driver.presence is Presence.USABLE:
        return
    refusals = [reason for reason in driver.reasons if reason.code == "compat-unsupported"]
    evidence: dict[str, FactValue] = {"cuda_driver.libraries.path": [winner.path]}
    if refusals:
        yield from_warning(refusals[0], evidence=evidence)
        return
    names = sorted({gpu.name for gpu in report.devices("nvidia") if gpu.name})
    consumer = [name for name in names if any(word in name for word in _CONSUMER)]
    loaded = str(report.fact("nvidia.driver_release", ""))
    release = str(winner.facts.get("driver_release", ""))
    if consumer:
        message = (
            f"programs load {winner.path}, a forward-compatibility library, which does not support"
        )
        yield Symptom(f"{message} {', '.join(consumer)}", evidence=evidence)
    elif loaded and release and _parts(release) < _parts(loaded):
        message = f"programs load {winner.path} {release}, a forward-compatibility library that is"
        yield Symptom(f"{message} older than the kernel module {loaded}", evidence=evidence)


def _parts(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdecimal())
