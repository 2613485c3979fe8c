"""RDMA cannot lock the memory that it sends from.

Found by:  memory and host: ulimit -l below 1 GiB on a machine with an InfiniBand, RoCE or EFA device.
No alarm:  the same limit without such a device, where it is the default.
Severity:  a warning where all its ports are Ethernet: such adapters do RDMA only where RoCE is set up.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.ERROR
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("memory", "host")
WHY = (
    "Registering memory fails, and NCCL, UCX and MPI stop or fall back to TCP. Services that systemd"
    " starts, such as slurmd, do not read /etc/security/limits.conf."
)
MEND = "Raise the limit where the process is started."
SOURCES = (
    "NVIDIA/nccl-tests#206",
    "openucx/ucx#8229",
    "https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_MEMLOCK)",
    "https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband, link_layer)",
)
WARNINGS = (("memory", "limit-below-hardware"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield what the probe found, with the way that fits what started the process."""
    ways = {
        "slurm": "LimitMEMLOCK=infinity in slurmd.service, then restart slurmd",
        "docker": "start the container with --ulimit memlock=-1",
    }
    started_by = report.fact("limits.scheduler") or report.fact("host.container", "")
    is_ethernet = report.fact("host.rdma_link_layers") == ["Ethernet"]
    for warning in report.warnings("memory", "limit-below-hardware"):
        yield Symptom(
            warning.message,
            hint=ways.get(str(started_by), warning.hint),
            evidence={
                "memory.locked_memory_limit_bytes": report.fact(
                    "memory.locked_memory_limit_bytes", 0
                ),
                "host.rdma_devices": report.fact("host.rdma_devices", []),
            },
            severity=Severity.WARNING if is_ethernet else None,
        )
