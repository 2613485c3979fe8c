"""MPI: mpirun of Open MPI, or mpiexec of MPICH and its kin, one rank on each node."""

import os
import shutil

from mlbackends.base.errors import BadInput
from mlbackends.fleet.engines import Job, Take, run_launcher
from mlbackends.host.command import outcome_of

#: By default the first rank that fails takes all others with it.
_OPEN_MPI = {
    "OMPI_MCA_orte_abort_on_non_zero_status": "0",
    "PRTE_MCA_prte_abort_on_non_zero_status": "0",
}
_VERSION_SECONDS = 20.0


def run(job: Job, take: Take) -> None:
    """Run one rank on each node that mpirun knows, or on those that are named."""
    launcher = job.where or shutil.which("mpirun") or shutil.which("mpiexec")
    if launcher is None:
        raise BadInput("neither mpirun nor mpiexec is on PATH", "load the module of your MPI")
    version = outcome_of([launcher, "--version"], _VERSION_SECONDS, os.environ).output
    hosts = ",".join(job.nodes)
    if "Open MPI" in version or "OpenRTE" in version or "PRRTE" in version:
        options = ["--map-by", "ppr:1:node", *(["--host", hosts] if hosts else [])]
    else:
        lasting = ["-disable-auto-cleanup"] if "HYDRA" in version and "Intel" not in version else []
        options = [
            *lasting,
            "-ppn",
            "1",
            *(["-hosts", hosts, "-n", str(len(job.nodes))] if hosts else []),
        ]
    run_launcher([launcher, *options], job, take, job.nodes, _OPEN_MPI)
