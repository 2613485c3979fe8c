"""A resolution as an Outcome, from which every CI format is made."""

from mlbackends.base.quantities import utc
from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.loading import FAULTS, Fault, PackageLoading, Resolution, Verdict
from mlbackends.model.records import nonempty


def outcome_of(resolution: Resolution) -> Outcome:
    """Return a check for each package that loads, and for each fault of the others."""
    return Outcome(
        schema=SCHEMA,
        tool=resolution.tool,
        kind="resolve",
        title="Packages load",
        subject=resolution.target or resolution.python,
        created=utc(),
        checks=tuple(check for package in resolution.packages for check in _checks(package)),
    )


def _checks(package: PackageLoading) -> list[Check]:
    name = f"{package.name} {package.version}".strip()
    loads = package.verdict in (Verdict.FALLS_BACK, Verdict.BREAKS)
    kinds = (
        (package.faults, str(package.verdict), Severity.ERROR),
        (package.fallbacks, str(Verdict.FALLS_BACK) if loads else "also lacks", Severity.WARNING),
        (package.parts, "a part does not load", Severity.NOTE),
    )
    found = [
        Check(
            code=fault.code,
            title=FAULTS.get(fault.code, fault.code),
            severity=severity,
            status=Status.UNKNOWN if fault.code == "not-read" else Status.FAILED,
            message=f"{name}: {verdict}: {fault.message}",
            why=fault.cause,
            hint=fault.hint,
            command=fault.command,
            evidence=nonempty({"path": list(fault.path), "others": list(fault.others)}),
            instance=f"{package.name} {fault.name}",
        )
        for faults, verdict, severity in kinds
        for fault in faults
    ]
    return found or [Check("loads", "The package loads.", message=f"{name} loads", instance=package.name)]


def fault_rows(resolution: Resolution) -> list[dict[str, str]]:
    """Return the first fault of each package that does not load, and each fallback, as rows of texts.

    What another one of the packages causes is left out: it has a row of its own. So is a requirement that is
    not met: comparing the requirements finds that.
    """
    rows = []
    for package in resolution.packages:
        others = [other for other in resolution.packages if other.name != package.name]
        of_package = {"package": package.name, "version": package.version, "verdict": str(package.verdict)}
        for fault in package.faults[:1] or package.fallbacks:
            is_of_another = any(fault.package == other.name and is_of(fault, other) for other in others)
            if not is_of_another and fault.code not in ("unmet-requirement", "not-read"):
                texts = {name: getattr(fault, name) for name in _TEXTS}
                row = {**of_package, **texts, "path": " -> ".join(fault.path)}
                rows.append({name: text for name, text in row.items() if text})
    return rows


_TEXTS = ("code", "name", "message", "path", "cause", "hint", "command")


def is_of(fault: Fault, package: PackageLoading) -> bool:
    """Return whether a package has a fault, or fails for another one."""
    own = (*package.faults, *package.fallbacks, *package.parts)
    return package.verdict is Verdict.FAILS or any(fault.message == other.message for other in own)
