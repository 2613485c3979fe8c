"""A library needs a Visual C++ runtime that Windows does not have."""

from typing import Any

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.libraries.windows import REDISTRIBUTABLE, is_runtime


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each library that lacks a part of it."""
    report.only_on("win32")
    for library in report.libraries("torch"):
        missing: Any = library.facts.get("missing_libraries", [])
        names = [name for name in missing if is_runtime(name)]
        if names:
            yield Symptom(
                f"{library.path} needs {', '.join(names)}, which the loader does not find",
                hint=REDISTRIBUTABLE,
                evidence={"torch.libraries.missing_libraries": names},
            )
    for probe in report.record.probes:
        for library in report.libraries(probe) if probe != "torch" else ():
            for reason in library.reasons:
                if reason.code == "missing-dependency" and reason.hint == REDISTRIBUTABLE:
                    yield Symptom(
                        f"{library.path}: {reason.message}",
                        hint=reason.hint,
                        evidence={f"{probe}.libraries.reasons": reason.message},
                    )
