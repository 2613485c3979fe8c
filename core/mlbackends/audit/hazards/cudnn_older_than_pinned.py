"""The loaded cuDNN is older than the one that torch was built with.

Found by:  torch's pin of nvidia-cudnn, compared with the libcudnn that is loaded first (cudnn).
No alarm:  a newer one; another patch of the same minor version, which torch accepts; the pinned package
           itself, which requirements-not-met reports.
"""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import described, older_than_pinned

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("torch", "cudnn")
WHY = (
    "torch rejects a cuDNN with a lower minor version than the one it was compiled with: RuntimeError, "
    "cuDNN version incompatibility."
)
FIX = "Remove the older copy from the loader's path: the wheels include their own."
SOURCES = ("torch 2.15, torch/backends/cudnn/__init__.py, _init", "pytorch/pytorch#80637")


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
