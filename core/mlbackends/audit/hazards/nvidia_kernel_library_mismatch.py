"""NVIDIA's kernel module and its user-space libraries are of different releases.

Found by:  /proc/driver/nvidia/version against the release in the name of the libcuda and libnvidia-ml
           that programs get; NVML's and CUDA's own word (18, 803).
No alarm:  a forward-compatibility libcuda, which is newer on purpose.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ()
WHY = (
    'CUDA does not start: cuInit returns 803, nvidia-smi says "Driver/library version mismatch". An'
    " upgrade replaced the files while the old module stayed loaded."
)
FIX = (
    "Reboot, or unload and load the nvidia kernel modules; then hold the driver's packages back from"
    " unattended upgrades."
)
SOURCES = ("NVIDIA/ubuntu-packaging-nvidia-driver#3", "pando85/homelab#4110")
_PROBES = ("nvidia", "cuda_driver")
WARNINGS = tuple((probe, "driver-mismatch") for probe in _PROBES)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each library that does not fit, by its file or by what it said."""
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
