"""A Linux NVIDIA driver inside WSL hides the Windows driver.

Found by:  /dev/dxg or /usr/lib/wsl/lib, and a libcuda or libnvidia-ml from elsewhere that is loaded first.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("cuda_driver", "nvidia")
WHY = "The Linux library needs a kernel module that WSL does not have, so CUDA finds no device."
FIX = "Remove the nvidia driver packages inside WSL; only Windows needs a driver."
SOURCES = (
    "https://docs.nvidia.com/cuda/wsl-user-guide/",
    "numba/numba#7106",
    "NVIDIA/cuml#6218",
)
WARNINGS = (("cuda_driver", "conflict"), ("nvidia", "conflict"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each library of the driver that is hidden."""
    if report.fact("host.wsl_version") is None and not report.fact("nvidia.wsl"):
        raise DoesNotApply("this is not WSL")
    for probe in ("cuda_driver", "nvidia"):
        winners = [library for library in report.libraries(probe) if library.wins]
        owner = winners[0].owner.split(" ")[0] if winners else ""
        has_apt = report.fact("host.os_id") in ("ubuntu", "debian")
        for warning in report.warnings(probe, "conflict"):
            yield Symptom(
                warning.message + (f"; it belongs to {owner}" if owner else ""),
                hint=warning.hint,
                command=f"sudo apt remove {owner}" if owner and has_apt else "",
                evidence={f"{probe}.libraries.path": [library.path for library in winners]},
            )
