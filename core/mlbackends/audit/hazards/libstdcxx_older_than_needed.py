"""The loaded libstdc++ is older than torch needs."""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.libraries import numbers


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
