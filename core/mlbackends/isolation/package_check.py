"""Import the modules of packages in separate interpreters, compute with them, and report what came of it.

A module is imported in the interpreter that is inspected, as a user's program would. The CHECK of its probe,
Python source, then leaves facts in `facts`, which the probe's `learned` reads, if it has one. `deep` is
whether it may compute for seconds; it sets `computed` once a result was right. `fail(code, message)` ends
it. `starts(accelerator, call)` records whether a call for an accelerator succeeds, and if not, the loader's
words.
"""

import os
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.host.command import outcome_of
from mlbackends.host.host import Host
from mlbackends.isolation.client import running, side_by_side
from mlbackends.isolation.protocol import reason_of
from mlbackends.model.records import Finding, Presence, ProbeReport, speaking_copy

#: How many times the seconds of a library's answer a package has to be imported, and to compute: importing
#: a framework from a slow disk takes half a minute.
IMPORT_TIMES, COMPUTE_TIMES = 6, 12

#: What the fact `imports` has for a module that was imported; its code, where computing failed afterwards.
IMPORTED = "imported"
_AFTER_IMPORT = ("call-failed", "wrong-result")
#: What the fact `accelerators` has for one that works.
STARTS = "starts"

_FRAME = r'''
import sys
if sys.path and sys.path[0] == "":  # before Python 3.11: a json.py there is not ours to import
    del sys.path[0]
import json, os
output = os.dup(1)
os.dup2(2, 1)
facts, deep, computed, STARTS = {}, %r, False, %r
def end(reason):
    os.write(output, ("\n" + %r + json.dumps(
        {"facts": facts, "reason": reason, "computed": computed}
    ) + "\n").encode())
    os._exit(0)
def fail(code, message):
    end([code, message])
def words(error):
    """The error that began it: numpy and others wrap the loader's words in pages of advice."""
    while isinstance(error, (ImportError, OSError)) and not isinstance(error, ModuleNotFoundError):
        first = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if not isinstance(first, (ImportError, OSError)):
            break
        error = first
    text = " ".join(str(error).split())[:500]
    return type(error).__name__ + (": " + text if text else "")
def starts(accelerator, call):
    ours, pipe = os.dup(2), os.pipe()
    os.set_blocking(pipe[1], False)
    os.write(pipe[1], b"\n")
    os.dup2(pipe[1], 2)
    why = ""
    try:
        if not call():
            why = "it is not offered"
    except BaseException as error:
        why = words(error)
    finally:
        os.dup2(ours, 2)
        os.close(pipe[1])
    printed = os.read(pipe[0], 65536).decode(errors="replace")
    import re
    text = re.sub(r"\x1b\[[0-9;]*m", "", why + "\n" + printed)
    loader = re.search(
        r"[^\s\"]+: (cannot open shared|undefined symbol|file too short|invalid ELF)[^\n]*", text
    )
    complaint = loader or re.search(r"[^\n]*([Ee]rror|[Ff]ailed|[Cc]annot|[Cc]ould not)[^\n]*", text)
    if why:
        why = " ".join(complaint.group().split())[:300] if complaint else why
    facts.setdefault("accelerators", {})[accelerator] = why or STARTS
try:
    import importlib
    importlib.import_module(%r)
except BaseException as error:
    fail("import-failed", words(error))
try:
    exec(%r, globals())
except BaseException as error:
    fail("call-failed", words(error))
end(None)
'''


class _Answer(msgspec.Struct):
    facts: dict[str, Any]
    reason: tuple[str, str] | None
    computed: bool


class _Task(NamedTuple):
    probe: str
    module: str
    check: str


class _Result(NamedTuple):
    task: _Task
    facts: dict[str, Any]
    reason: Reason | None
    seconds: float
    computed: bool = False


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

    timeout: seconds for an answer of a library. deep: the probes whose CHECK may compute for seconds.
    progress: called with the name of a probe whose package is still being imported.
    """
    tasks = [
        _Task(name, module, getattr(modules[name], "CHECK", "") if module == first else "")
        for name, finding in findings.items()
        if name in reports and finding.imports
        for first in finding.imports[:1]
        for module in finding.imports
    ]
    # Big ones first, and few at once: each may take a gigabyte.
    tasks.sort(key=lambda task: not task.check)
    left = [task.probe for task in tasks]
    results: dict[str, list[_Result]] = {}

    def run(task: _Task) -> list[_Result]:
        return [_result(task, host, timeout, task.probe in deep)]

    if left:
        progress(left[0])
    for result in side_by_side(run, tasks, min(4, (os.cpu_count() or 1) + 1)):
        results.setdefault(result.task.probe, []).append(result)
        left.remove(result.task.probe)
        if left:
            progress(left[0])
    return {
        name: _with_results(name, modules[name], reports[name], own)
        for name, own in results.items()
    }


def _result(task: _Task, host: Host, timeout: float, deep: bool) -> _Result:
    executable = str(host.python.get("executable", ""))
    limit, seal = timeout * (COMPUTE_TIMES if deep else IMPORT_TIMES), os.urandom(8).hex()
    start = time.perf_counter()
    program = _FRAME % (deep, STARTS, seal, task.module, task.check)
    # No framework is to take the memory of a GPU for being asked whether it starts.
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **host.environment}
    command = (executable, "-c", program)
    outcome = outcome_of(command, limit, environment, subprocess.STDOUT, running=running)
    seconds = time.perf_counter() - start
    for line in outcome.output.splitlines():
        with suppress(msgspec.DecodeError):
            if line.startswith(seal):
                answer = msgspec.json.decode(line[len(seal) :], type=_Answer)
                code, message = answer.reason or ("", "")
                if code == "import-failed":
                    message = f"import {task.module} fails: {message}"
                reason = Reason(code, message) if code else None
                return _Result(task, answer.facts, reason, seconds, answer.computed)
    doing = f"import {task.module}" + (" and computing " if deep and task.check else " ")
    if outcome.status is None and not outcome.timed_out:
        reason = Reason("not-asked", f"{executable} could not be started")
    else:
        reason = reason_of(outcome.status, limit, outcome.output.encode(), doing)
    return _Result(task, {}, reason, seconds)


def _with_results(
    name: str, probe: ModuleType, report: ProbeReport, results: list[_Result]
) -> ProbeReport:
    """Return a probe's report with what came of importing its modules."""
    facts: dict[str, Any] = {}
    for result in results:
        facts |= result.facts
    facts = getattr(probe, "learned", dict)(facts)
    facts["imports"] = {
        result.task.module: result.reason.message
        if result.reason and result.reason.code not in _AFTER_IMPORT
        else IMPORTED
        for result in results
    }
    reasons = tuple(result.reason for result in results if result.reason)
    warnings = report.warnings
    refused = {
        accelerator: why
        for accelerator, why in facts.get("accelerators", {}).items()
        if why != STARTS
    }
    if refused:
        why = "; ".join(f"{accelerator}: {text}" for accelerator, text in refused.items())
        version = f"{facts.get('distribution') or report.facts.get('distribution') or name}"
        message = f"{version} {report.version} loads, then falls back to the CPU: {why}"
        warnings += (Reason("falls-back", message),)
    presence, libraries = report.presence, list(report.libraries)
    copy = speaking_copy(name, report.libraries)
    if not reasons and any(result.computed for result in results):
        presence = Presence.USABLE
        if copy is not None:
            libraries[libraries.index(copy)] = replace(copy, presence=presence, reasons=())
    elif not reasons:
        presence = Presence.LOADABLE
        code, text = "no-use-check", "no check here computes with it"
        if "computed = True" in getattr(probe, "CHECK", ""):
            code, text = "not-computed", f"`backends info {name}` computes with it"
        reasons = (Reason(code, f"it is imported; {text}"),)
        if report.presence is Presence.LOADABLE:
            reasons = report.reasons
    return replace(
        report,
        presence=presence,
        facts={**report.facts, **facts},
        libraries=tuple(libraries),
        reasons=reasons,
        warnings=warnings,
        duration_seconds=round(
            report.duration_seconds + sum(result.seconds for result in results), 6
        ),
    )
