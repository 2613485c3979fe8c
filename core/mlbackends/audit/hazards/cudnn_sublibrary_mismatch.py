"""cuDNN's sub-libraries have different versions.

Found by:  cudnn: versions in file names and of the libcudnn next to them; copies that the loader finds by
           LD_LIBRARY_PATH, or in the system if a wheel lacks them; cuDNN's own version checks. torch:
           whether it opens the wheel's libcudnn by RPATH while the sub-libraries come from a second cuDNN.
No alarm:  a second complete cuDNN of the same version.
"""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import cudnn_parted, described

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("cudnn",)
WHY = (
    "libcudnn opens its sub-libraries by name and rejects other versions: the first convolution fails "
    "with CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH."
)
FIX = "Keep one complete cuDNN on the loader's path, and remove the other."
SOURCES = ("pytorch/pytorch#188892", "pytorch/pytorch#185512", "koharu-rs/koharu#694")
WARNINGS = (("cudnn", "sub-library-mismatch"), ("cudnn", "sub-library-shadowed"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each way in which they are mixed, with all the parts that are concerned."""
    parted = cudnn_parted(report)
    if parted is not None:
        _, other, ours = parted
        yield Symptom(
            f"torch opens {described(ours)} by RPATH, but its sub-libraries come from"
            f" {described(other)}, because {other.found_by} precedes RUNPATH",
            command=without_folder(report, other.found_by, other.path),
            evidence={"cudnn.libraries.path": [ours.path, other.path]},
        )
    for _, code in WARNINGS:
        found = list(report.warnings("cudnn", code))
        if not found:
            continue
        more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
        # "take FOLDER out of VARIABLE"
        folder, _, variable = found[0].hint.removeprefix("take ").rpartition(" out of ")
        command = without_folder(report, variable, f"{folder}/libcudnn") if folder else ""
        yield Symptom(
            found[0].message + more,
            hint=found[0].hint,
            command=command,
            evidence={"cudnn.warnings.message": [warning.message for warning in found]},
        )
