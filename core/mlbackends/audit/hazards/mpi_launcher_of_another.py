"""The MPI launcher on PATH is not of the MPI library.

Found by:  mpi: whose mpirun is the first on PATH, and whose libmpi programs get.
No alarm:  a launcher of the batch system, such as srun.
"""

from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
READS = ("mpi",)
WHY = "Each process then takes itself for the only one, as rank 0 of 1: the same work is done N times."
MEND = "Start programs with the launcher of the library that they are linked with."
SOURCES = (
    "https://docs.open-mpi.org/en/main/launching-apps/",
    "https://mpi4py.readthedocs.io/en/stable/install.html",
)
WARNINGS = (("mpi", "conflict"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where they differ."""
    for warning in report.warnings("mpi", "conflict"):
        yield from_warning(warning, evidence={"mpi.launchers": report.fact("mpi.launchers", [])})
