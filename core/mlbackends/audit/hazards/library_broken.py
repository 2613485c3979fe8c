"""A library that processes would load cannot be opened or used."""

import re

from mlbackends.audit.environment import reinstall, without_folder
from mlbackends.audit.hazard import NotReported, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.imports import is_named
from mlbackends.audit.libraries import (
    failed,
    is_of_one_package,
    is_opened_by_package,
    is_opened_by_torch,
    not_opened,
    package_of,
)
from mlbackends.model.records import Library

_CODES = ("dangling-link", "wrong-architecture", "not-a-library")
#: What is opened when a program runs; libX.so alone is for linking, and may be a script.
_RUNTIME_NAME = re.compile(r"\.so\.\d|-[0-9a-f]{6,40}\.so|\.dylib$|\.dll$|\.libs/")
_OF_THE_SYSTEM = frozenset({"ld.so.cache", "system-folder", "well-known-folder"})
_EVERYWHERE = ("openmp", "blas", "openblas", "cudnn")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each file that a process would take, or that ends its search."""
    if not any(name in report.record.probes for name in _EVERYWHERE):
        raise NotReported("the report has no libraries")
    reported: set[str] = set()
    yield from _bad_files(report, reported)
    for failure in failed(report):
        if failure.library.path not in reported and not is_named(report, failure.library.path):
            reported.add(failure.library.path)
            library, reason = failure.library, failure.reason
            message = reason.message
            if library.path not in message:
                message = f"{library.path}: {message}"
            if library.owner:
                message += f"; it belongs to {library.owner}"
            # A plug-in finds the rest in its program; an old library may lack a symbol and be whole.
            is_plugin = reason.code == "missing-dependency" and library.found_by in _OF_THE_SYSTEM
            may_work = is_plugin or reason.code == "missing-symbol"
            severity = Severity.WARNING if may_work else Severity.ERROR
            severity = Severity.NOTE if failure.driver else severity
            yield Symptom(
                message,
                hint=reason.hint,
                command="" if failure.driver else _command(report, library),
                evidence={
                    f"{failure.probe}.libraries.path": [library.path],
                    f"{failure.probe}.libraries.reasons.code": [reason.code],
                },
                severity=severity,
            )
    if not reported and (why := not_opened(report)):
        raise NotReported(why)


def _bad_files(report: ReportView, reported: set[str]) -> Symptoms:
    """Yield one for each file that is seen to be bad without opening it. reported: their paths are added."""
    for name in report.record.probes:
        copies = report.libraries(name)
        good = {copy.soname for copy in copies if copy.wins}
        for library in copies:
            reason = next((reason for reason in library.reasons if reason.code in _CODES), None)
            if reason is None or library.path in reported or not _RUNTIME_NAME.search(library.path):
                continue
            if is_named(report, library.path):
                continue
            # Of a wrong processor and of nothing the loader goes on; a file that is none ends it,
            # except in LD_PRELOAD, where the loader reports and ignores it.
            is_fatal = reason.code == "not-a-library" and library.found_by == "LD_LIBRARY_PATH"
            soname = library.soname
            if is_opened_by_torch(report, soname) or is_opened_by_package(report, soname):
                is_fatal = False
            if library.soname in good and not is_fatal and not is_of_one_package(library):
                continue
            reported.add(library.path)
            severity = Severity.NOTE if library.found_by in _OF_THE_SYSTEM else None
            if is_fatal or library.found_by == "site-packages":
                severity = Severity.ERROR
            message = reason.message
            if library.path not in message:
                message = f"{library.path}: {message}"
            if is_fatal:
                message += "; the loader's search ends there with an error"
            elif library.soname not in good:
                message += f"; no other copy of {library.soname} is usable"
            yield Symptom(
                message,
                command=_command(report, library),
                evidence={f"{name}.libraries.path": [library.path]},
                severity=severity,
            )


def _command(report: ReportView, library: Library) -> str:
    if library.found_by == "site-packages" and library.owner:
        return reinstall(report, *package_of(library))
    return without_folder(report, library.found_by, library.path)
