"""The loaded cuDNN is older than the one that torch was built with."""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.libraries import described, older_than_pinned


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the copy that wins is older."""
    found = older_than_pinned(report)
    if found is None:
        return
    library, pin = found
    yield Symptom(
        f"torch needs {pin['package']} {pin['wanted']}, but processes load {described(library)}:"
        f" {library.wins_because}",
        command=without_folder(report, library.found_by, library.path),
        evidence={"torch.pins": [pin], "cudnn.libraries.path": [library.path]},
    )
