"""MPI: mpirun of Open MPI, or mpiexec of MPICH and its kin, one rank on each node."""

import os
import re
import shutil
from collections.abc import Sequence

from mlbackends.base.errors import BadInput
from mlbackends.fleet.engines import Job, NoReport, Take, run_launcher
from mlbackends.fleet.labels import is_away, status_of
from mlbackends.host.command import outcome_of
from mlbackends.model.fleet import Envelope

#: By default the first rank that fails takes all others with it.
_OPEN_MPI = {
    "OMPI_MCA_orte_abort_on_non_zero_status": "0",
    "PRTE_MCA_prte_abort_on_non_zero_status": "0",
}
_NODE = "${SLURMD_NODENAME:-${NODE_NAME:-$(uname -n)}}"
#: Runs a command on a node and reports a failure, which mpirun itself describes for one rank or for none.
_REPORTING = f'"$@" || {{ code=$?; echo "mpirun: {_NODE}: exit code $code" >&2; }}'
#: Standard input for the command, which mpirun itself gives to one rank.
_GIVING = f'[ -r "$0" ] || {{ echo "mpirun: {_NODE}: $0 cannot be read here" >&2; exit; }}; exec <"$0"; '
_VERSION_SECONDS = 20.0


def run(job: Job, take: Take) -> None:
    """Run one rank on each node that mpirun knows, or on those that are named."""
    if job.given and not job.given_file:
        hint = "backends fleet bundle --output /shared/backends.pyz, and --push /shared/backends.pyz"
        raise BadInput("--mpi needs --push FILE in a folder that the nodes share", hint)
    launcher = job.where or shutil.which("mpirun") or shutil.which("mpiexec")
    if launcher is None:
        raise BadInput("neither mpirun nor mpiexec is on PATH", "load the module of your MPI")
    version = outcome_of([launcher, "--version"], _VERSION_SECONDS, os.environ).output
    is_open = any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE"))
    lasting = ["-disable-auto-cleanup"] if "HYDRA" in version and "Intel" not in version else []

    def run_on(nodes: Sequence[str]) -> None:
        hosts = ",".join(nodes)
        if is_open:
            options = ["--map-by", "ppr:1:node", *(["--host", hosts] if hosts else [])]
        else:
            options = [*lasting, "-ppn", "1"]
            options += ["-hosts", hosts, "-n", str(len(nodes))] if hosts else []
        node = [_GIVING + _REPORTING, job.given_file] if job.given else [_REPORTING, "sh"]
        run_launcher([launcher, *options, "sh", "-c", *node], job, take, nodes, _OPEN_MPI)

    def attempt(nodes: Sequence[str]) -> None:
        """Run on nodes; again without those that refused, or on each half: one keeps all from starting."""
        try:
            run_on(nodes)
        except NoReport as failure:
            if not nodes or len(job.nodes) < 2:
                raise
            lines = [line for line in failure.text.splitlines() if is_away(line)]
            refused = {
                node: line
                for node in nodes
                for line in lines
                if re.search(rf"(?<![\w.-]){re.escape(node)}(?![\w-])", line)
            }
            if len(nodes) == 1:
                refused = dict.fromkeys(nodes, next(iter(lines), str(failure)))  # ssh's words come first
            for node, error in refused.items():
                take(Envelope(node=node, status=status_of(error), error=error))
            rest = [node for node in nodes if node not in refused]
            middle = 0 if refused else len(rest) // 2
            for part in filter(None, (rest[:middle], rest[middle:])):
                attempt(part)

    attempt(job.nodes)
