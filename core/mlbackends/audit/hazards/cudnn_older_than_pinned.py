"""The cuDNN that a process gets is older than the one torch was built with.

Found by:  torch's pin of nvidia-cudnn, held to the libcudnn that wins (cudnn).
No alarm:  a newer one; another patch of the same minor version, which torch takes; the pinned package
           itself, of which pinned-version-differs tells.
"""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import described, older_than_pinned

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("torch", "cudnn")
WHY = (
    "torch refuses a cuDNN whose minor version is below the one it was compiled with: RuntimeError, cuDNN"
    " version incompatibility."
)
FIX = "Take the older copy off the loader's path: the wheels bring their own."
SOURCES = ("torch 2.15, torch/backends/cudnn/__init__.py, _init", "pytorch/pytorch#80637")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the copy that wins is older."""
    found = older_than_pinned(report)
    if found is None:
        return
    library, pin = found
    yield Symptom(
        f"torch needs {pin['package']} {pin['wanted']}, and a process gets {described(library)}:"
        f" {library.wins_because}",
        command=without_folder(report, library.found_by, library.path),
        evidence={"torch.pins": [pin], "cudnn.libraries.path": [library.path]},
    )
