"""cuDNN's sub-libraries are not all of one version.

Found by:  cudnn: versions in file names and of the libcudnn beside them; what the loader takes by
           LD_LIBRARY_PATH, or from the system where a wheel lacks it; the version checks of cuDNN.
           torch: whether it opens the wheel's libcudnn by RPATH, before a second cuDNN that its parts
           then come from.
No alarm:  a second whole cuDNN of the same version.
"""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import cudnn_parted, described

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("cudnn",)
WHY = (
    "libcudnn opens its parts by name and refuses those of another version: the first convolution"
    " ends with CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH."
)
FIX = "Let one whole cuDNN be on the loader's path, and remove the other."
SOURCES = ("pytorch/pytorch#188892", "pytorch/pytorch#185512", "koharu-rs/koharu#694")
WARNINGS = (("cudnn", "sub-library-mismatch"), ("cudnn", "sub-library-shadowed"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each way in which they are mixed, with all the parts that are concerned."""
    parted = cudnn_parted(report)
    if parted is not None:
        _, other, ours = parted
        yield Symptom(
            f"torch opens {described(ours)} by RPATH, and its sub-libraries are taken from"
            f" {described(other)}, for {other.found_by} comes before RUNPATH",
            command=without_folder(report, other.found_by, other.path),
            evidence={"cudnn.libraries.path": [ours.path, other.path]},
        )
    for _, code in WARNINGS:
        found = list(report.warnings("cudnn", code))
        if not found:
            continue
        more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
        yield Symptom(
            found[0].message + more,
            hint=found[0].hint,
            command=_command(report, found[0].hint),
            evidence={"cudnn.warnings.message": [warning.message for warning in found]},
        )


def _command(report: ReportView, hint: str) -> str:
    """Return the command for "take FOLDER out of VARIABLE", "" for another hint."""
    folder, _, variable = hint.removeprefix("take ").rpartition(" out of ")
    return without_folder(report, variable, f"{folder}/libcudnn") if folder else ""
