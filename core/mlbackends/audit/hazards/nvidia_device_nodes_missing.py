"""Device nodes that CUDA needs are missing or not accessible.

Found by:  the names in /dev and their permissions; nothing is opened.
No alarm:  /dev/nvidia-uvm before the first CUDA program if nvidia-modprobe creates it; Jetson boards, which
           have other nodes; a device that computed.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.model.records import Presence

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("nvidia",)
WHY = (
    "CUDA needs /dev/nvidiactl, /dev/nvidia-uvm and a node for the GPU: otherwise it returns 999 (unknown "
    "error) or finds no device, and frameworks use the CPU."
)
FIX = "On a machine: nvidia-modprobe -u -c 0 as root. In a container: start it with its GPUs."
SOURCES = ("pytorch/pytorch#49081", "NVIDIA/nvidia-docker#997", "NVIDIA/DIGITS#799")
_GROUP = "join the node's group, or give the nvidia module NVreg_DeviceFileMode=0666"
WARNINGS = (("nvidia", "device-nodes-missing"), ("nvidia", "permission-denied"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each node, or kind of node, that is missed."""
    if report.fact("nvidia.jetson_model"):
        raise DoesNotApply("Jetson boards have other device nodes")
    driver = report.probe("cuda_driver")
    if driver is not None and driver.presence is Presence.USABLE:
        return
    nodes = {"nvidia.device_nodes": report.fact("nvidia.device_nodes", [])}
    is_machine = report.fact("host.container", "none") == "none"
    for code in ("device-nodes-missing", "permission-denied"):
        hint = _GROUP if code == "permission-denied" and is_machine else ""
        for warning in report.warnings("nvidia", code):
            command = "sudo nvidia-modprobe -u -c 0" if "nvidia-uvm" in warning.message else ""
            yield Symptom(
                warning.message,
                warning.hint or hint,
                command=command if is_machine and code == "device-nodes-missing" else "",
                evidence=nodes,
            )
