"""Hazards of shared libraries: which copies the loader takes, and whether they open."""

import os
import re
from typing import Any

from mlbackends.audit.environment import is_off, is_on, reinstall, settings, uninstall, without_folder
from mlbackends.audit.hazard import (
    DoesNotApply,
    NotReported,
    ReportView,
    Severity,
    Symptom,
    Symptoms,
    from_warning,
)
from mlbackends.audit.imports import is_named
from mlbackends.audit.libraries import (
    Shadowed,
    cudnn_parted,
    described,
    failed,
    is_of_one_package,
    is_opened_by_package,
    is_opened_by_torch,
    not_opened,
    numbers,
    older_than_pinned,
    package_of,
    shadowed,
)
from mlbackends.libraries.windows import REDISTRIBUTABLE, is_runtime
from mlbackends.model.records import Library

_CODES = ("dangling-link", "wrong-architecture", "not-a-library")
#: What is opened when a program runs; libX.so alone is for linking, and may be a script.
_RUNTIME_NAME = re.compile(r"\.so\.\d|-[0-9a-f]{6,40}\.so|\.dylib$|\.dll$|\.libs/")
_OF_THE_SYSTEM = frozenset({"ld.so.cache", "system-folder", "well-known-folder"})
_EVERYWHERE = ("openmp", "blas", "openblas", "cudnn")


def library_broken(report: ReportView) -> Symptoms:
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


def ld_library_path_shadows_wheels(report: ReportView) -> Symptoms:
    """Yield one for each folder, with every library that it shadows."""
    older = older_than_pinned(report)
    older_path = older[0].path if older else ""
    folders: dict[tuple[str, str], list[Shadowed]] = {}
    for pair in shadowed(report):
        if pair.chosen.path != older_path:
            folder = pair.chosen.path.rpartition("/")[0]
            folders.setdefault((pair.chosen.found_by, folder), []).append(pair)
    for (variable, folder), pairs in folders.items():
        first = pairs[0]
        more = f", and {len(pairs) - 1} more of wheels" if len(pairs) > 1 else ""
        unlike = any(pair.chosen.version and pair.wheel.version for pair in pairs)
        paths: dict[str, list[str]] = {}
        for copy in pairs:
            paths.setdefault(f"{copy.probe}.libraries.path", []).extend((copy.chosen.path, copy.wheel.path))
        yield Symptom(
            f"{variable} names {folder}: {described(first.chosen)} is loaded instead of"
            f" {described(first.wheel)}{more}",
            command=without_folder(report, variable, first.chosen.path),
            evidence={**paths},
            severity=None if unlike else Severity.WARNING,
        )


def libstdcxx_older_than_needed(report: ReportView) -> Symptoms:
    """Yield one where symbols are missing."""
    needed = [
        (version, library)
        for library in report.libraries("torch")
        if isinstance(version := library.facts.get("libstdcxx_needed"), str)
    ]
    if not needed:
        return
    has, path = report.need("host.libstdcxx_version"), report.fact("host.libstdcxx_path", "")
    for version, library in needed:
        if numbers(version) > numbers(has):
            variables = ("LD_LIBRARY_PATH", "LD_PRELOAD")
            commands = (without_folder(report, variable, path) for variable in variables)
            yield Symptom(
                f"{library.path} needs GLIBCXX_{version}, but {path} has only GLIBCXX_{has} and older",
                command=next(filter(None, commands), ""),
                evidence={"torch.libstdcxx_needed": version, "host.libstdcxx_version": has},
            )


def glibc_older_than_wheel(report: ReportView) -> Symptoms:
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


def cudnn_older_than_pinned(report: ReportView) -> Symptoms:
    """Yield one where the copy that wins is older."""
    found = older_than_pinned(report)
    if found is None:
        return
    library, pin = found
    yield Symptom(
        f"torch needs {pin['package']} {pin['wanted']}, but processes load {described(library)}:"
        f" {library.wins_because}",
        command=without_folder(report, library.found_by, library.path),
        evidence={"torch.pins": [pin], "cudnn.libraries.path": [library.path]},
    )


def cudnn_sublibrary_mismatch(report: ReportView) -> Symptoms:
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
    for code in ("sub-library-mismatch", "sub-library-shadowed"):
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


def cudnn_sublibrary_missing(report: ReportView) -> Symptoms:
    """Yield one for each copy."""
    for warning in report.warnings("cudnn", "sub-library-missing"):
        copy = next(
            (library for library in report.libraries("cudnn") if library.path in warning.message),
            None,
        )
        from_wheel = copy is not None and copy.found_by == "site-packages" and copy.owner
        yield from_warning(
            warning,
            command=reinstall(report, *package_of(copy)) if copy and from_wheel else "",
            evidence={"cudnn.libraries.path": [copy.path]} if copy else {},
            severity=None if copy is None or copy.wins else Severity.NOTE,
        )


_NAME = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC = (":4096:8", ":16:8")
_ASKING = {
    "TF_DETERMINISTIC_OPS": is_on,
    "TF_CUDNN_DETERMINISTIC": is_on,
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": is_off,
    "FLASH_ATTENTION_DETERMINISTIC": is_on,
}


def cublas_not_deterministic(report: ReportView) -> Symptoms:
    """Yield one where it is asked for and not given."""
    if not report.devices("nvidia") and not report.libraries("nvidia"):
        raise DoesNotApply("there is no NVIDIA GPU")
    variables = settings(report)
    value = variables.get(_NAME, "")
    asking = [name for name, requests in _ASKING.items() if requests(variables.get(name, ""))]
    if value in _DETERMINISTIC or not (value or asking):
        return
    message = f"{' and '.join(asking)} request{'s' if len(asking) == 1 else ''} deterministic results, but"
    message += f" {_NAME} is {value[:40]!r}" if value else f" {_NAME} is not set"
    if not asking:
        message = f"{_NAME} is {value[:40]!r}, which is not a deterministic workspace"
    names = [*asking, *([_NAME] if value else [])]
    yield Symptom(
        message,
        command=f"export {_NAME}=:4096:8",
        evidence={f"environment.variables.{name}": variables[name] for name in names},
    )


_PROBES = (
    "cuda_runtime", "cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nvrtc", "nvjitlink",
)  # fmt: skip


def cuda_on_path_differs(report: ReportView) -> Symptoms:
    """Yield one for the first library of which copies differ."""
    report.only_on("win32")
    for probe in _PROBES:
        copies = [library for library in report.libraries(probe) if library.version and not library.reasons]
        for wheel in (copy for copy in copies if copy.found_by == "site-packages"):
            for other in (copy for copy in copies if copy.found_by == "PATH"):
                if other.soname == wheel.soname and other.version != wheel.version:
                    yield Symptom(
                        f"PATH has {described(other)}, and an installed wheel {described(wheel)}",
                        evidence={f"{probe}.libraries.version": [other.version, wheel.version]},
                    )
                    return


_DEADLOCK = frozenset({"intel", "llvm"})
#: A package that brings the runtime alone; what needs it finds torch's or the system's.
_STANDALONE = "intel-openmp"


def openmp_two_runtimes(report: ReportView) -> Symptoms:
    """Yield one for each meeting that the probe foresees."""
    copies = {library.path: library for library in report.libraries("openmp")}
    meeting = [copies[path] for path in report.fact("openmp.conflicting_copies", []) if path in copies]
    makers = {str(library.facts.get("runtime", "")) for library in meeting}
    severity = None
    own = [runtime for runtime in meeting if runtime.facts.get("runtime") in _DEADLOCK]
    is_windows = report.fact("host.platform") == "win32"
    if makers >= _DEADLOCK or (is_windows and len(own) > 1):
        severity = Severity.ERROR
    elif len(meeting) > 1 and (is_windows or (len(makers) == 1 and not own)):
        return
    owners = {package_of(library)[0] for library in meeting}
    command = uninstall(report, _STANDALONE) if len(owners) > 1 and _STANDALONE in owners else ""
    for warning in report.warnings("openmp", "conflict"):
        yield from_warning(
            warning,
            command=command,
            evidence={"openmp.conflicting_copies": [library.path for library in meeting]},
            severity=severity,
        )


_BY_LOADER = ("LD_LIBRARY_PATH", "ld.so.cache", "system-folder")


def ggml_builds_differ(report: ReportView) -> Symptoms:
    """Yield one for each name that several builds have."""
    copies = [copy for copy in report.libraries("ggml") if copy.found_by in _BY_LOADER]
    for soname in sorted({copy.soname for copy in copies}):
        paths = [copy.path for copy in copies if copy.soname == soname]
        if len({os.path.dirname(path) for path in paths}) > 1:
            yield Symptom(
                f"programs get {paths[0]}, although {paths[1]} is installed too",
                evidence={"ggml.libraries.path": paths},
            )


_OWN = ("site-packages", "python-prefix", "conda", "application")


def dll_of_another_processor(report: ReportView) -> Symptoms:
    """Yield one for each copy."""
    report.only_on("win32")
    for probe in report.record.probes:
        for library in report.libraries(probe):
            reason = next(iter(library.reasons), None)
            if reason and reason.code == "wrong-architecture" and library.found_by in _OWN:
                yield Symptom(
                    f"{library.path}: {reason.message}",
                    evidence={f"{probe}.libraries.reasons": reason.message},
                )


def visual_cpp_runtime_missing(report: ReportView) -> Symptoms:
    """Yield one for each library that lacks a part of it."""
    report.only_on("win32")
    for library in report.libraries("torch"):
        missing: Any = library.facts.get("missing_libraries", [])
        names = [name for name in missing if is_runtime(name)]
        if names:
            yield Symptom(
                f"{library.path} needs {', '.join(names)}, which the loader does not find",
                hint=REDISTRIBUTABLE,
                evidence={"torch.libraries.missing_libraries": names},
            )
    for probe in report.record.probes:
        for library in report.libraries(probe) if probe != "torch" else ():
            for reason in library.reasons:
                if reason.code == "missing-dependency" and reason.hint == REDISTRIBUTABLE:
                    yield Symptom(
                        f"{library.path}: {reason.message}",
                        hint=reason.hint,
                        evidence={f"{probe}.libraries.reasons": reason.message},
                    )
