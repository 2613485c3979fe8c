"""Packages that cannot be imported, as hazards read them: what fails, why, and the command that fixes it."""

import os

from msgspec import Struct

from mlbackends.audit.environment import install, reinstall, required_text
from mlbackends.audit.hazard import ReportView
from mlbackends.audit.libraries import package_of
from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import UNCERTAIN

_MODULE = pattern(r"No module named '([\w.]+)'")
_LIBRARY = pattern(
    r"([^\s'\"]+): (cannot open shared object file|file too short|invalid ELF header|cannot read)"
)
_BROKEN = ("file too short", "invalid ELF header", "cannot read")


class Unimportable(Struct, frozen=True):
    """Modules that cannot be imported for one cause. probes: the probes whose packages have them.

    is_certain: whether the import ended; one that ran out of time did not.
    """

    cause: str
    modules: tuple[str, ...]
    probes: tuple[str, ...]
    is_certain: bool


def unimportable(report: ReportView) -> list[Unimportable]:
    """Return what cannot be imported, by cause: a package fails with the words of the one that it imports."""
    found: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for name, probe in report.record.probes.items():
        codes = {reason.message: reason.code for reason in probe.reasons}
        for module, text in report.fact(f"{name}.imports", {}).items():
            if text in codes:
                cause = text.removeprefix(f"import {module} ").removeprefix("fails: ")
                is_certain = codes[text] not in UNCERTAIN
                found.setdefault((cause, is_certain), []).append((module, name))
    return [
        Unimportable(
            cause,
            tuple(module for module, _ in failing),
            tuple(dict.fromkeys(name for _, name in failing)),
            is_certain,
        )
        for (cause, is_certain), failing in found.items()
    ]


def unmet_causes(report: ReportView, failing: Unimportable) -> list[dict[str, str]]:
    """Return the requirements without which an import fails: what its packages lack, and the module named.

    Whatever else a package lacks would be the next to fail.
    """
    module = _MODULE.search(failing.cause)
    if not module and "cannot open" not in failing.cause:
        return []
    # A distribution is usually named as its module; if not, what the package lacks is the reason.
    name = module[1].partition(".")[0].replace("_", "-").lower() if module else ""
    owners = {report.fact(f"{probe}.distribution", probe) for probe in failing.probes}
    return [
        row
        for row in report.fact("packages.unmet", [])
        if row["needs"] == name or (row["package"] in owners and row["needs"] != "python")
    ]


def fix(report: ReportView, failing: Unimportable) -> str:
    """Return the command that makes an import work, "" where none is known to."""
    if rows := unmet_causes(report, failing):
        # Only one of several ranges for a package is given to pip: it resolves the others itself.
        wanted = {row["needs"]: required_text(row) for row in reversed(rows)}
        return install(report, *sorted(wanted.values()))
    file = _LIBRARY.search(failing.cause)
    name = os.path.basename(file[1]) if file else ""
    for row in report.fact("packages.missing_files", []):
        if file and os.path.basename(row["example"]) == name:
            return reinstall(report, row["name"], row["version"])
    for probe in report.record.probes if file and file[2] in _BROKEN else ():
        for library in report.libraries(probe):
            if os.path.basename(library.path) == name and library.owner:
                return reinstall(report, *package_of(library))
    module = _MODULE.search(failing.cause)
    is_own = module is not None and module[1].partition(".")[0] == failing.modules[0]
    if is_own or (file and file[2] in _BROKEN):
        owner = report.fact(f"{failing.probes[0]}.distribution", "")
        return reinstall(report, owner, report.package(owner)) if owner else ""
    return ""


def is_named(report: ReportView, path: str) -> bool:
    """Return whether the cause of a failed import names a file, which is then reported there."""
    name = os.path.basename(path)
    return any(name in failing.cause for failing in unimportable(report) if failing.is_certain)
