"""A DLL of this environment is for another architecture than Python."""

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms

_OWN = ("site-packages", "python-prefix", "conda", "application")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each copy."""
    report.only_on("win32")
    for probe in report.record.probes:
        for library in report.libraries(probe):
            reason = next(iter(library.reasons), None)
            if reason and reason.code == "wrong-architecture" and library.found_by in _OWN:
                yield Symptom(
                    f"{library.path}: {reason.message}",
                    evidence={f"{probe}.libraries.reasons": reason.message},
                )
