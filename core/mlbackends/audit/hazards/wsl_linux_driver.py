"""A Linux NVIDIA driver inside WSL hides the Windows driver."""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptom, Symptoms


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each library of the driver that is hidden."""
    if report.fact("host.wsl_version") is None and not report.fact("nvidia.wsl"):
        raise DoesNotApply("this is not WSL")
    for probe in ("cuda_driver", "nvidia"):
        winners = [library for library in report.libraries(probe) if library.wins]
        owner = winners[0].owner.split(" ")[0] if winners else ""
        has_apt = report.fact("host.os_id") in ("ubuntu", "debian")
        for warning in report.warnings(probe, "conflict"):
            yield Symptom(
                warning.message + (f"; it belongs to {owner}" if owner else ""),
                hint=warning.hint,
                command=f"sudo apt remove {owner}" if owner and has_apt else "",
                evidence={f"{probe}.libraries.path": [library.path for library in winners]},
            )
