"""The NVIDIA driver and its device nodes are present, but libcuda.so.1 is missing.

Found by:  nodes and kernel module of the driver, and a search for libcuda.so.1 without a result.
No alarm:  a container without GPUs, which has no nodes; a machine without the driver.
"""

from mlbackends.audit.gpus import container, is_gpu_node
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.model.records import FactValue, Presence

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("nvidia", "cuda_driver", "host")
WHY = "No CUDA program starts, while nvidia-smi may work: NVML is another part of the driver."
FIX = (
    "In a container, add the driver's compute part (NVIDIA_DRIVER_CAPABILITIES=compute,utility, --gpus "
    "all); on a machine, install the driver's compute libraries."
)
SOURCES = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    "mudler/LocalAI#11973",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where everything of the driver is there but its CUDA library."""
    nodes = report.fact("nvidia.device_nodes", [])
    of_gpus = [node for node in nodes if is_gpu_node(node)]
    if not of_gpus:
        raise DoesNotApply("no NVIDIA GPU has a device node")
    driver = report.probe("cuda_driver")
    if driver is None or driver.presence is not Presence.ABSENT:
        return
    capabilities = report.variable("NVIDIA_DRIVER_CAPABILITIES")
    reason = next((reason for reason in driver.reasons if reason.code == "not-found"), None)
    evidence: dict[str, FactValue] = {"nvidia.device_nodes": list(nodes)}
    if capabilities is not None:
        evidence["environment.variables.NVIDIA_DRIVER_CAPABILITIES"] = capabilities
    place = f"the container ({kind})" if (kind := container(report)) else "the machine"
    yield Symptom(
        f"{place} has {', '.join(of_gpus)}, but {reason.message if reason else 'no libcuda.so.1'}",
        hint=reason.hint if reason else "",
        evidence=evidence,
    )
