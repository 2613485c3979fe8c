"""The device nodes of AMD GPUs are missing or not accessible."""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptoms, from_warning
from mlbackends.model.records import Presence

_CONTAINER = "podman run --device=/dev/kfd --device=/dev/dri --group-add keep-groups ..."
_COMMANDS = {
    "podman": _CONTAINER,
    "docker": "docker run --device=/dev/kfd --device=/dev/dri --group-add $(stat -c %g /dev/kfd) ...",
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for /dev/kfd, and one for each GPU whose own node is closed."""
    gpus = [device for device in report.devices("rocm") if device.kind == "rocm"]
    if not gpus:
        raise DoesNotApply("this machine has no AMD GPU")
    probe_report = report.probe("rocm")
    if probe_report is None or probe_report.presence is Presence.USABLE:
        return
    if (
        not probe_report.libraries
        and not report.fact("rocm.installations")
        and not report.fact("torch.hip_version")
    ):
        raise DoesNotApply("no ROCm software is installed")
    kind = str(report.fact("host.container", "none"))
    reasons = [reason for reason in probe_report.reasons if "/dev/kfd" in reason.message]
    reasons += [
        reason
        for gpu in gpus
        for reason in gpu.reasons
        if reason.code == "permission-denied" and "/dev/dri/" in reason.message
    ]
    for reason in dict.fromkeys(reasons):
        yield from_warning(
            reason,
            command=_COMMANDS.get(kind, ""),
            evidence={"rocm.reasons.code": [reason.code], "host.container": kind},
        )
