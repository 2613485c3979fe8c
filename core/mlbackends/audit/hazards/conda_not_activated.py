"""A conda environment of Windows is used without being activated.

Found by:  python: the interpreter is conda's, and its Library/bin is not on PATH.
No alarm:  an activated environment; Python from elsewhere; other systems, where libraries are found by RPATH.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("python",)
WHY = (
    "MKL, OpenMP and OpenSSL of a conda environment lie in its Library/bin, which activation puts on PATH."
    " Without it imports end with `DLL load failed`, or take DLLs of another program that is on PATH."
)
MEND = "Activate the environment, or start programs with `conda run`."
SOURCES = (
    "https://docs.conda.io/projects/conda/en/latest/user-guide/troubleshooting.html",
    "ContinuumIO/anaconda-issues#10185",
    "ContinuumIO/anaconda-issues#10054",
    "numpy/numpy#14172",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where its libraries are not on PATH."""
    report.only_on("win32")
    if report.fact("python.library_folder_on_path") is False:
        prefix = report.fact("python.prefix", "")
        yield Symptom(
            f"{prefix}/Library/bin, with the environment's libraries, is not on PATH",
            command=f"conda activate '{prefix}'",
            evidence={"python.library_folder_on_path": False, "python.prefix": prefix},
        )
