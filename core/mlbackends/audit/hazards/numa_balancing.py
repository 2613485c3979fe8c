"""The kernel moves pages between NUMA nodes under a running program.

Found by:  memory: kernel.numa_balancing, on a machine with more than one node.
No alarm:  one node, where it does nothing; without a GPU it is a note, since it also helps programs that
           place nothing themselves.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.base.errors import counted

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("memory",)
WHY = (
    "It unmaps pages to see who uses them. That stalls threads that launch kernels for milliseconds,"
    " and makers of GPUs ask for it to be off."
)
MEND = (
    "Switch it off and place processes with numactl; kernel.numa_balancing=0 in sysctl.d keeps it."
)
SOURCES = (
    "deepseek-ai/DeepEP#624",
    "ROCm/amdsmi#81",
    "ROCm documentation, System optimization, Disable NUMA auto-balancing",
    "https://docs.kernel.org/admin-guide/sysctl/kernel.html (numa_balancing)",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one on a machine with several nodes: a note where no GPU is."""
    numbers = [node["node"] for node in report.fact("memory.nodes", ())]
    nodes = len(numbers)
    if nodes < 2:
        raise DoesNotApply("the machine has one NUMA node")
    if not report.need("memory.numa_balancing"):
        return
    gpus = len(report.devices("nvidia")) + len(report.devices("rocm"))
    yield Symptom(
        f"the kernel balances {nodes} NUMA nodes by itself (kernel.numa_balancing)"
        + (f", on a machine with {counted(gpus, 'GPU')}" if gpus else ""),
        command="sysctl kernel.numa_balancing=0",
        evidence={"memory.numa_balancing": True, "memory.nodes.node": numbers},
        severity=None if gpus else Severity.NOTE,
    )
