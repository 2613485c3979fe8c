"""Packages that cannot be imported, as hazards read them: what fails, why, and the command that fixes it."""

import os
import re
from collections.abc import Sequence

from msgspec import Struct

from mlbackends.audit.environment import install, install_unmet, readable, reinstall
from mlbackends.audit.hazard import ReportView
from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import UNCERTAIN, UNCHECKED
from mlbackends.host.python.packages import owners_of
from mlbackends.model.records import Presence

_MODULE = pattern(r"No module named '([\w.]+)'")
_CLOSED = pattern(r"; this user may not read (.+)$")
_DAMAGED = pattern(r"; \S.* of (\S+) (\S+) (?:is missing|has \d+ bytes instead of \d+)$")
_OF_A_PACKAGE = pattern(r"/\S+/(?:site|dist)-packages/[^/\s':]+")
_CUT_OFF = ("file too short", "invalid ELF header", "cannot read file data")


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
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, probe in report.record.probes.items():
        codes = {reason.message: reason.code for reason in probe.reasons}
        for module, text in report.fact(f"{name}.imports", {}).items():
            if text in codes:
                cause = text.removeprefix(f"import {module} ").removeprefix("fails: ")
                found.setdefault((cause, codes[text]), []).append((module, name))
    failures = []
    for (cause, code), failing in found.items():
        modules = tuple(module for module, _ in failing)
        probes = tuple(dict.fromkeys(name for _, name in failing))
        if code in ("crashed", "exited") and not _DAMAGED.search(cause):
            cause += _broken_library(report, probes)
        failures.append(Unimportable(cause, modules, probes, code not in UNCERTAIN))
    return failures


def _broken_library(report: ReportView, probes: Sequence[str]) -> str:
    """Return the library of packages that a process cannot open, to end a sentence; "" for none."""
    owners = tuple(f"{report.fact(f'{probe}.distribution', probe)} " for probe in probes)
    for probe in report.record.probes:
        for library in report.libraries(probe):
            for reason in library.reasons if library.owner.startswith(owners) else ():
                if library.presence is Presence.FOUND and reason.code not in UNCERTAIN | UNCHECKED:
                    about = reason.message.removeprefix(f"{library.path}: ")
                    return f"; {library.path}: {about}"
    return ""


def unmet_causes(report: ReportView, failing: Unimportable) -> list[dict[str, str]]:
    """Return the requirements without which an import fails: what its packages lack, and the module named.

    Whatever else a package lacks would be the next to fail.
    """
    module = _MODULE.search(failing.cause)
    if "cannot open" not in failing.cause and not failing.cause.startswith("ModuleNotFoundError"):
        return []
    # A distribution is usually named as its module; if not, what the package lacks is the reason.
    name = _distribution(module)
    probes = () if _DAMAGED.search(failing.cause) else failing.probes
    owners = {name for probe in probes for name in owners_of(report.record.probes[probe].facts)}
    return [
        row
        for row in report.fact("packages.unmet", [])
        if row["needs"] == name or (row["package"] in owners and row["needs"] != "python")
    ]


def _distribution(module: re.Match[str] | None) -> str:
    """Return the name that the distribution of a module usually has."""
    return module[1].partition(".")[0].replace("_", "-").lower() if module else ""


def fix(report: ReportView, failing: Unimportable) -> str:
    """Return the command that makes an import work, "" where none is known to."""
    if closed := _CLOSED.search(failing.cause):
        return readable(*closed[1].split(", "))
    if "Permission denied" in failing.cause and (package := _OF_A_PACKAGE.search(failing.cause)):
        return readable(package[0])
    module = _MODULE.search(failing.cause)
    lost = _distribution(module)
    if rows := unmet_causes(report, failing):
        is_direct = not lost or lost in {row["needs"] for row in rows}
        return install_unmet(report, rows, by_package=not is_direct)
    if damaged := _DAMAGED.search(failing.cause):
        return reinstall(report, damaged[1], damaged[2])
    is_own = module is not None and module[1].partition(".")[0] == failing.modules[0]
    owner = report.fact(f"{failing.probes[0]}.distribution", "")
    if version := report.package(lost):  # only its metadata is left
        return reinstall(report, lost, version)
    if owner and (is_own or any(words in failing.cause for words in _CUT_OFF)):
        return reinstall(report, owner, report.package(owner))
    # Packages often import these without requiring them.
    return install(report, lost) if lost in ("jax", "numpy", "torch") else ""


def is_named(report: ReportView, path: str) -> bool:
    """Return whether the cause of a failed import names a file, which is then reported there."""
    name = os.path.basename(path)
    return any(name in failing.cause for failing in unimportable(report) if failing.is_certain)
