"""NVIDIA's kernel module and user-space libraries have different versions.

Found by:  /proc/driver/nvidia/version, compared with the release in the names of the libcuda and
           libnvidia-ml that programs load; NVML's and CUDA's errors 18 and 803.
No alarm:  a forward-compatibility libcuda, which is newer on purpose.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ()
WHY = (
    'CUDA does not start: cuInit returns 803, nvidia-smi prints "Driver/library version mismatch". An '
    "upgrade replaced the files while the old module stayed loaded."
)
FIX = (
    "Reboot, or reload the nvidia kernel modules; then exclude the driver's packages from unattended "
    "upgrades."
)
SOURCES = ("NVIDIA/ubuntu-packaging-nvidia-driver#3", "pando85/homelab#4110")
_PROBES = ("nvidia", "cuda_driver")
WARNINGS = tuple((probe, "driver-mismatch") for probe in _PROBES)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each library of another release, by its file or by its error."""
    evidence = {"nvidia.driver_release": report.fact("nvidia.driver_release", "")}
    for probe in _PROBES:
        warnings = tuple(report.warnings(probe, "driver-mismatch"))
        for warning in warnings:
            yield from_warning(warning, evidence=evidence)
        probe_report = report.probe(probe)
        if probe_report is None or warnings:
            continue
        for reason in probe_report.reasons:
            if reason.code == "driver-mismatch":
                yield from_warning(reason, evidence=evidence)
                break
