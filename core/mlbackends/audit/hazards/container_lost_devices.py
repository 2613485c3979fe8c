"""A container has lost access to its GPUs.

Found by:  the device nodes exist, and NVML returns an unknown error or a refusal by the system.
No alarm:  a refusal outside a container, which has other causes and is reported as such.
"""

from mlbackends.audit.gpus import container
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
READS = ("nvidia", "host")
WHY = (
    "systemd rewrote the container's device rules, for example at `systemctl daemon-reload`: running "
    "programs continue, and new ones find no GPU."
)
FIX = (
    "Restart the container. To prevent it, pass GPUs by CDI, create the /dev/char links on the host (sudo "
    "nvidia-ctk system create-dev-char-symlinks --create-all), or use the cgroupfs driver."
)
SOURCES = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    "NVIDIA/nvidia-container-toolkit#48",
    "NVIDIA/nvidia-container-toolkit#251",
    "NVIDIA/nvidia-container-toolkit#1227",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where NVML cannot reach what the nodes promise."""
    if not (kind := container(report)):
        raise DoesNotApply("this is not a container")
    probe_report = report.probe("nvidia")
    nodes = report.fact("nvidia.device_nodes", [])
    if probe_report is None or not nodes:
        return
    reasons = [
        *probe_report.reasons,
        *(reason for gpu in probe_report.devices for reason in gpu.reasons),
    ]
    lost = next((reason for reason in reasons if reason.code == "access-lost"), None)
    if lost is not None:
        yield Symptom(
            f"the container ({kind}) has {nodes[0]} and other nodes, but {lost.message}",
            evidence={"nvidia.device_nodes": list(nodes), "host.container": kind},
        )
