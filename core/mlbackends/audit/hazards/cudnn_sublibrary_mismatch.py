"""cuDNN's sub-libraries have different versions."""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.libraries import cudnn_parted, described

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
