"""The shared memory in /dev/shm is too small for processes that share tensors.

Found by:  the size of /dev/shm: below 1 GiB, or a quarter of the memory where that is less.
No alarm:  a small machine whose /dev/shm is small in proportion.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("host",)
WHY = (
    'Workers of a DataLoader die with a bus error, and NCCL says "No space left on device", both in'
    " the middle of a run: Docker gives 64 MB unless it is asked for more."
)
MEND = "Start the container with --ipc=host or --shm-size=16g; in Kubernetes mount a Memory emptyDir there."
SOURCES = (
    "NVIDIA/nccl#342",
    "NVIDIA/nccl#290",
    "NVIDIA/nccl#525",
    "open-mmlab/mmsegmentation#1356",
)
WARNINGS = (("host", "small-shared-memory"),)
_COMMANDS = {"docker": "docker run --shm-size=16g ...", "podman": "podman run --shm-size=16g ..."}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the probe found it too small."""
    kind = str(report.fact("host.container", "none"))
    for warning in report.warnings("host", "small-shared-memory"):
        yield Symptom(
            warning.message,
            hint="" if kind == "kubernetes" else warning.hint,
            command=_COMMANDS.get(kind, ""),
            evidence={
                "host.shared_memory_bytes": report.fact("host.shared_memory_bytes", 0),
                "host.container": kind,
            },
        )
