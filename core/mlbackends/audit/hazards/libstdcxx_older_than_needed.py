"""The loaded libstdc++ is older than torch needs.

Found by:  the newest GLIBCXX symbols that libtorch_cpu needs, compared with those of the first libstdc++.
No alarm:  a copy that is newer than the system's, such as conda's.
"""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import numbers

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("torch", "host")
WHY = (
    "The first copy that is opened serves the whole process; an older one lacks symbols: `version "
    "'GLIBCXX_3.4.30' not found`."
)
FIX = "Put a newer libstdc++ first: the system's, or that in the environment's lib folder."
SOURCES = ("pytorch/pytorch#157709", "pytorch/pytorch#87279")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where symbols are missing."""
    needed = [
        (version, library)
        for library in report.libraries("torch")
        if isinstance(version := library.facts.get("libstdcxx_needed"), str)
    ]
    if not needed:
        return
    has, path = report.need("host.libstdcxx_version"), report.fact("host.libstdcxx_path", "")
    for version, library in needed:
        if numbers(version) > numbers(has):
            variables = ("LD_LIBRARY_PATH", "LD_PRELOAD")
            commands = (without_folder(report, variable, path) for variable in variables)
            yield Symptom(
                f"{library.path} needs GLIBCXX_{version}, but {path} has only GLIBCXX_{has} and older",
                command=next(filter(None, commands), ""),
                evidence={"torch.libstdcxx_needed": version, "host.libstdcxx_version": has},
            )
