"""An installed wheel is compiled for a newer CPU than this one."""

from mlbackends.audit.environment import install, uninstall
from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms
from mlbackends.host.cpu.floors import unmet_floor
from mlbackends.model.records import nonempty


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    if report.fact("cpu.architecture") != "x86_64":
        raise DoesNotApply("requirements are known only for x86-64")
    is_conda = report.fact("python.manager") == "conda"
    has = frozenset(report.need("cpu.features"))
    level = nonempty({"cpu.x86_64_level": report.fact("cpu.x86_64_level")})
    installed = report.fact("packages.distributions", {})
    for name in sorted(installed):
        version = report.package(name)
        if version and (unmet := unmet_floor(name, version, has, installed)):
            row, missing = unmet
            command = install(report, row.instead.format(version=version)) if row.instead else ""
            if row.is_instead_alone:
                command = f"{uninstall(report, name)} && {command}"
            yield Symptom(
                f"{name} {version} needs {', '.join(missing)}, which this CPU lacks"
                f" ({report.fact('cpu.x86_64_level', 'x86-64')})",
                command=command,
                severity=Severity.WARNING if is_conda else None,
                evidence={f"packages.distributions.{name}": version, **level},
            )
