"""Import the modules of packages in separate interpreters, compute with them, and report what came of it.

A module is imported in the interpreter that is inspected, as a user's program would, by package_frame.py.
`check` of package_checks/NAME.py, next to the probe NAME, is then called there with the frame's `Child`. The
probe's `learned` reads the facts that it left, if the probe has one.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from mlbackends.base.reasons import UNCHECKED, Reason
from mlbackends.base.registry import check_of
from mlbackends.base.tables import table
from mlbackends.host.command import outcome_of
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution, module_location, owners_of, record_bytes
from mlbackends.host.python.requirements import required
from mlbackends.host.python.wheel_files import damage
from mlbackends.isolation.client import running, side_by_side
from mlbackends.isolation.package_frame import STARTS
from mlbackends.isolation.protocol import reason_of
from mlbackends.model.records import IMPORTED, OPENED, Finding, Presence, ProbeReport, speaking_copy

#: How many times the seconds of a library's answer a package has to be imported, and to compute: importing
#: a framework from a slow disk takes half a minute.
IMPORT_TIMES, COMPUTE_TIMES = 6, 12

#: Reasons that computing failed after the import.
_AFTER_IMPORT = ("call-failed", "wrong-result")

#: Reasons that the import failed.
_NOT_IMPORTED = ("import-failed", "crashed", "exited")

#: How the names of extension modules end.
_ENDINGS = (".so", ".pyd", ".dll", ".dylib")

#: Runs a file without its folder on sys.path. Before Python 3.11 the current folder was there.
_RUN = "import sys; sys.path[:1] == [''] and sys.path.pop(0); exec(open(sys.argv[1], 'rb').read())"
_FRAME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "package_frame.py")


class _Answer(msgspec.Struct):
    facts: dict[str, Any]
    reason: tuple[str, str] | None
    computed: bool
    computes: bool


class _Result(NamedTuple):
    probe: str
    module: str
    facts: dict[str, Any]
    reason: Reason | None
    seconds: float
    computed: bool = False
    computes: bool = False


def extension_of(host: Host, finding: Finding) -> str:
    """Return the extension module of the package that a probe found, "" if none is listed or exists.

    Those that are listed, below site-packages, open without another package. The first that exists counts.
    """
    module = finding.imports[0] if finding.imports else ""
    patterns = table("isolation/extensions").get(module, ())
    folder = os.path.dirname(module_location(host, module)) if patterns else ""
    paths = (path for pattern in patterns for path in host.glob(f"{folder}/{pattern}"))
    return next((path for path in paths if path.endswith(_ENDINGS)), "") if folder else ""


def left_out(name: str, report: ProbeReport, module: str = "") -> ProbeReport:
    """Return the report of a package that was not imported. module: its own, if its extension was opened."""
    facts = {**report.facts, "imports": {module: OPENED}} if module else report.facts
    if report.presence is not Presence.FOUND or report.reasons:
        return replace(report, facts=facts)
    how = "its extension module opens" if module else "it was not imported"
    code, presence = ("not-computed", Presence.LOADABLE) if module else ("not-imported", Presence.FOUND)
    reason = Reason(code, f"{how}; `backends info {name}` and `backends doctor` import it")
    return replace(report, facts=facts, presence=presence, reasons=(reason,))


def imported(
    reports: dict[str, ProbeReport],
    modules: dict[str, ModuleType],
    findings: dict[str, Finding],
    host: Host,
    timeout: float,
    deep: Collection[str],
    progress: Callable[[str], None],
) -> dict[str, ProbeReport]:
    """Return the reports of probes with packages, whose modules were imported, each in its own process.

    timeout: seconds for an answer of a library. deep: the probes whose check may compute for seconds.
    progress: called with the name of a probe whose package is still being imported.
    """
    tasks = [
        (name, module, check_of(name, modules[name]) if module == finding.imports[0] else "", finding.facts)
        for name, finding in findings.items()
        if name in reports
        for module in finding.imports
    ]
    tasks.sort(key=lambda task: not task[2])  # big ones first
    left = [name for name, *_ in tasks]
    results: dict[str, list[_Result]] = {}

    def run(task: tuple[str, str, str, Mapping[str, Any]]) -> list[_Result]:
        result = _result(*task[:3], host, timeout, task[0] in deep)
        if (reason := result.reason) and reason.code in _NOT_IMPORTED:
            # A module that has no probe of its own is of a package that uses BLAS.
            users = table("libraries/consumers")["packages"]
            owners = owners_of(task[3]) or [name for name in users if users[name]["module"] == task[1]]
            message = reason.message + _damaged(host, owners, reason.message)
            result = result._replace(reason=replace(reason, message=message))
        return [result]

    if left:
        progress(left[0])
    # Few at once: each may take a gigabyte.
    for result in side_by_side(run, tasks, min(4, (os.cpu_count() or 1) + 1)):
        results.setdefault(result.probe, []).append(result)
        left.remove(result.probe)
        if left:
            progress(left[0])
    return {name: _with_results(name, modules[name], reports[name], results[name]) for name in results}


def _damaged(host: Host, owners: list[str], words: str) -> str:
    """Return a damaged file of distributions, or of what they require, to end the words; "" for none."""
    lost = re.search(r"No module named '(\w+)", words)
    is_owner = re.compile(rf'^"?{lost[1]}[/.]'.encode() if lost else b"", re.MULTILINE)
    for owner in owners if "may not read" not in words and "Permission denied" not in words else ():
        if dist := distribution(host, owner):
            if is_owner.search(record_bytes(host, dist)) and (text := damage(host, dist)):
                return f"; {text}"
            owners += [need.name for need in required(host, dist) if need.name not in owners]
    return ""


def _result(probe: str, module: str, check: str, host: Host, timeout: float, deep: bool) -> _Result:
    """Import one module, and run the check of its probe, a file."""
    executable = str(host.python.get("executable", ""))
    limit, seal = timeout * (COMPUTE_TIMES if deep else IMPORT_TIMES), os.urandom(8).hex()
    start = time.perf_counter()
    command = (executable, "-c", _RUN, _FRAME, module, check, seal, "deep" * deep)
    # No framework is to take the memory of a GPU for being asked whether it starts.
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **host.environment}
    outcome = outcome_of(command, limit, environment, subprocess.STDOUT, running=running)
    seconds = time.perf_counter() - start
    for line in outcome.output.splitlines():
        with suppress(msgspec.DecodeError):
            if line.startswith(seal):
                answer = msgspec.json.decode(line[len(seal) :], type=_Answer)
                code, message = answer.reason or ("", "")
                if code == "import-failed":
                    message = f"import {module} fails: {message}"
                reason = Reason(code, message) if code else None
                result = _Result(probe, module, answer.facts, reason, seconds)
                return result._replace(computed=answer.computed, computes=answer.computes)
    if outcome.status is None and not outcome.timed_out:
        reason = Reason("not-asked", f"{executable} could not be started")
    else:
        doing = f"import {module} " + "and computing " * bool(deep and check)
        reason = reason_of(outcome.status, limit, outcome.output.encode(), doing)
    return _Result(probe, module, {}, reason, seconds)


def _with_results(name: str, probe: ModuleType, report: ProbeReport, results: list[_Result]) -> ProbeReport:
    """Return a probe's report with what came of importing its modules."""
    learned: dict[str, Any] = {}
    imports: dict[str, str] = {}
    for _, module, facts, reason, *_ in results:
        learned |= facts
        fails = reason is not None and reason.code not in _AFTER_IMPORT
        imports[module] = reason.message if reason and fails else IMPORTED
    facts = report.facts | getattr(probe, "learned", dict)(learned) | {"imports": imports}
    accelerators = learned.get("accelerators", {})
    refused = [f"{accelerator}: {why}" for accelerator, why in accelerators.items()]
    warnings = report.warnings
    if refused and STARTS not in accelerators.values():  # onnxruntime needs no TensorRT for CUDA
        build = f"{facts.get('distribution') or name} {report.version}"
        message = f"{build} loads, then falls back to the CPU: {'; '.join(refused)}"
        warnings += (Reason("falls-back", message),)
    reasons = tuple(reason for reason in report.reasons if reason.code not in UNCHECKED)
    reasons += tuple(result.reason for result in results if result.reason)
    presence, libraries = report.presence, list(report.libraries)
    if not reasons and any(result.computed for result in results):
        presence = Presence.USABLE
        if copy := speaking_copy(name, report.libraries):
            libraries[libraries.index(copy)] = replace(copy, presence=presence, reasons=())
    elif not reasons:
        presence = Presence.LOADABLE
        code, text = "no-use-check", "no check here computes with it"
        if any(result.computes for result in results):
            code, text = "not-computed", f"`backends info {name}` computes with it"
        reasons = (Reason(code, f"it is imported; {text}"),)
    seconds = report.duration_seconds + sum(result.seconds for result in results)
    return replace(
        report,
        presence=presence,
        facts=facts,
        libraries=tuple(libraries),
        reasons=reasons,
        warnings=warnings,
        duration_seconds=round(seconds, 6),
    )
