"""MPI: mpirun of Open MPI, or mpiexec of MPICH and its kin, one rank on each node."""

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from mlbackends.base.errors import BadInput, MlBackendsError
from mlbackends.fleet.engines import Job, Take, run_launcher
from mlbackends.fleet.labels import status_of
from mlbackends.host.command import outcome_of
from mlbackends.model.fleet import Envelope

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
    is_open = any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE"))
    lasting = ["-disable-auto-cleanup"] if "HYDRA" in version and "Intel" not in version else []

    def run_on(nodes: Sequence[str], take: Take) -> None:
        hosts = ",".join(nodes)
        if is_open:
            options = ["--map-by", "ppr:1:node", *(["--host", hosts] if hosts else [])]
        else:
            options = [*lasting, "-ppn", "1"]
            options += ["-hosts", hosts, "-n", str(len(nodes))] if hosts else []
        run_launcher([launcher, *options], job, take, nodes, _OPEN_MPI)

    def alone(node: str) -> list[Envelope]:
        found: list[Envelope] = []
        try:
            run_on([node], found.append)
        except MlBackendsError as failure:
            error = str(failure)
            return [Envelope(node=node, status=status_of(error), error=error)]
        return [replace(envelope, node=node) for envelope in found]

    try:
        run_on(job.nodes, take)
    except BadInput:
        raise
    except MlBackendsError:
        # One host that refuses keeps mpirun from starting anything: start it once for each.
        if len(job.nodes) < 2:
            raise
        with ThreadPoolExecutor(min(job.fanout, len(job.nodes))) as pool:
            for envelopes in pool.map(alone, job.nodes):
                for envelope in envelopes:
                    take(envelope)
