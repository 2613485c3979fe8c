"""Slurm: srun, one task on each node of the allocation that it is run in."""

import os
import tempfile
from collections.abc import Sequence

from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import pattern
from mlbackends.fleet.engines import Job, Take, run_launcher
from mlbackends.fleet.nodesets import expanded
from mlbackends.host.command import outcome_of
from mlbackends.model.fleet import Envelope, Status

_LAUNCH_SECONDS = 60.0
_NOT_LAUNCHED = pattern(r"Task launch for \S+ failed on node ([\w.-]+): (.*)")


def expected(job: Job) -> tuple[str, ...]:
    """Return the nodes of the allocation, or those of them that are named."""
    if "SLURM_JOB_ID" not in os.environ:
        raise BadInput(
            "this is not inside a Slurm allocation, and none is created",
            "salloc -N8, or in a batch script: backends fleet run --slurm",
        )
    return job.nodes or expanded(os.environ.get("SLURM_JOB_NODELIST", ""))


def run(job: Job, take: Take) -> None:
    """Run one step of the allocation, on the nodes that start tasks.

    srun kills the tasks of a whole step where one node cannot start its own; an empty step shows which nodes
    those are.
    """
    nodes = expected(job)
    with tempfile.TemporaryFile() as errors:
        outcome_of([*_srun(nodes), "true"], _LAUNCH_SECONDS, os.environ, errors.fileno())
        errors.seek(0)
        lost = dict(_NOT_LAUNCHED.findall(errors.read().decode(errors="replace")))
    for node, error in lost.items():
        take(Envelope(node=node, status=Status.UNREACHABLE, error=error))
    if left := [node for node in nodes if node not in lost]:
        run_launcher(_srun(left), job, take, left, given=job.given)  # srun gives it to all tasks


def _srun(nodes: Sequence[str]) -> list[str]:
    return [
        "srun", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--ntasks-per-node=1",
        f"--ntasks={len(nodes)}", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--mem=0",
    ]  # fmt: skip
