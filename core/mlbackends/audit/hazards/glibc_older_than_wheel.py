"""Installed wheels need a newer glibc than this machine has."""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptom, Symptoms
from mlbackends.audit.libraries import numbers


def symptoms(report: ReportView) -> Symptoms:
    """Yield one, with every package that asks for more."""
    if report.fact("host.platform") != "linux":
        raise DoesNotApply("only Linux has glibc")
    needed: dict[str, str] = dict(report.fact("packages.glibc_needed", {}))
    for library in report.libraries("torch"):
        version = library.facts.get("glibc_needed")
        if isinstance(version, str) and numbers(version) > numbers(needed.get("torch", "0")):
            needed["torch"] = version
    if not needed:
        return
    libc, version = report.need("host.libc"), report.need("host.libc_version")
    if libc != "musl":
        needed = {name: least for name, least in needed.items() if numbers(least) > numbers(version)}
    if needed:
        listed = ", ".join(f"{name} (glibc {least})" for name, least in sorted(needed.items())[:5])
        more = f" and {len(needed) - 5} more" if len(needed) > 5 else ""
        yield Symptom(
            f"this machine has {libc} {version}; a newer one is needed by {listed}{more}",
            evidence={"packages.glibc_needed": needed, "host.libc_version": version},
        )
