"""The MPI launcher on PATH is not of the MPI library.

Found by:  mpi: whose mpirun is the first on PATH, and whose libmpi programs get.
No alarm:  a launcher of the batch system, such as srun; Hydra, with MPICH and with Intel's MPI.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("mpi",)
WHY = (
    "A process that does not find its own launcher starts as the only one, rank 0 of 1: the same work is"
    " done N times."
)
MEND = "Start programs with the launcher of the library that they are linked with."
SOURCES = (
    "open-mpi/ompi#13523",
    "https://www.intel.com/content/www/us/en/docs/mpi-library/ (mpiexec.hydra)",
)
WARNINGS = (("mpi", "conflict"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where they differ."""
    for warning in report.warnings("mpi", "conflict"):
        yield from_warning(warning, evidence={"mpi.launchers": report.fact("mpi.launchers", [])})
