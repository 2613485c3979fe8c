"""The kernel lists AMD GPUs to this container, and lets it use none of them.

Found by:  nodes of the KFD topology whose properties are empty: the container's device rules forbid
           their render nodes, and none is left that tells what it is.
No alarm:  a container that was given some of the GPUs; the rest is forbidden on purpose.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("rocm",)
WHY = "HIP starts and counts no GPU; rocminfo lists processors alone."
MEND = (
    "Give the container the render nodes too: --device=/dev/dri, or --device=/dev/dri/renderD128."
)
SOURCES = ("ROCm, running containers: restricting GPU access", "Linux kfd_topology.c")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where every GPU is forbidden."""
    forbidden = report.fact("rocm.unreadable_node_count", 0)
    if forbidden and report.fact("rocm.visible_gpu_count") is None:
        yield Symptom(
            f"{forbidden} nodes of the KFD topology do not tell what they are, and no GPU is left",
            evidence={"rocm.unreadable_node_count": forbidden},
        )
