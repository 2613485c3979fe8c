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

from mlbackends.base.reasons import UNCHECKED, Reason
from mlbackends.host.command import outcome_of
from mlbackends.host.host import Host
from mlbackends.host.python.packages import module_location
from mlbackends.isolation.client import running, side_by_side
from mlbackends.isolation.protocol import reason_of
from mlbackends.model.records import IMPORTED, OPENED, Finding, Presence, ProbeReport, speaking_copy

#: How many times the seconds of a library's answer a package has to be imported, and to compute: importing
#: a framework from a slow disk takes half a minute.
IMPORT_TIMES, COMPUTE_TIMES = 6, 12

#: Reasons that computing failed after the import.
_AFTER_IMPORT = ("call-failed", "wrong-result")
#: What the fact `accelerators` has for one that works.
STARTS = "starts"

#: The extension modules of packages, below site-packages: the first that exists counts. They open without
#: another package.
EXTENSIONS = {
    "bitsandbytes": ("bitsandbytes/libbitsandbytes_cpu.*",),
    "ctranslate2": ("ctranslate2/_ext.*",),
    "faiss": ("faiss/_swigfaiss.*",),
    "jax": ("jaxlib/_jax.*", "jaxlib/xla_extension.*"),
    "numpy": ("numpy/_core/_multiarray_umath.*", "numpy/core/_multiarray_umath.*"),
    "onnxruntime": ("onnxruntime/capi/onnxruntime_pybind11_state.*",),
    "openvino": ("openvino/_pyopenvino.*",),
    "scipy": ("scipy/linalg/_fblas.*",),
    "torch": ("torch/_C.*",),
    "triton": ("triton/_C/libtriton.*",),
}
_ENDINGS = (".so", ".pyd", ".dll", ".dylib")

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
import re
def of_loader(text):
    """The loader's complaint in a text, or ""."""
    pattern = r"[^\s\"]+: (cannot open shared|undefined symbol|file too short|invalid ELF)[^\n]*"
    match = re.search(pattern, text)
    return match.group() if match else ""
def words(error):
    """The error that began it: numpy and others wrap the loader's words in pages of advice."""
    while isinstance(error, (ImportError, OSError)) and not isinstance(error, ModuleNotFoundError):
        first = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if not isinstance(first, (ImportError, OSError)):
            break
        error = first
    text = str(error)
    text = " ".join((of_loader(text) if len(text) > 300 else text).split() or text.split())[:500]
    return type(error).__name__ + (": " + text if text else "")
def starts(accelerator, call):
    ours, pipe = os.dup(2), os.pipe()
    os.write(pipe[1], b"\n")
    if os.name != "nt":  # there a full pipe would stop the library
        os.set_blocking(pipe[1], False)
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
    if why:
        printed = os.read(pipe[0], 65536).decode(errors="replace")
        text = re.sub(r"\x1b\[[0-9;]*m", "", why + "\n" + printed)
        complaint = re.search(r"[^\n]*([Ee]rror|[Ff]ailed|[Cc]annot|[Cc]ould not)[^\n]*", text)
        why = of_loader(text) or (complaint.group() if complaint else why)
        # A line of a log begins with its time, and with where it was written.
        why = " ".join(re.sub(r"^\S.*?\.cc:\d+\] ", "", why).split())[:300]
    facts.setdefault("accelerators", {})[accelerator] = why or STARTS
try:
    import importlib
    importlib.import_module(%r)
except BaseException as error:
    fail("import-failed", words(error))
try:
    exec(%r, globals())
except (AttributeError, NameError, TypeError) as error:  # another release's interface
    if deep:
        fail("call-failed", words(error))
except BaseException as error:
    fail("call-failed", words(error))
end(None)
'''


class _Answer(msgspec.Struct):
    facts: dict[str, Any]
    reason: tuple[str, str] | None
    computed: bool


class _Result(NamedTuple):
    probe: str
    module: str
    facts: dict[str, Any]
    reason: Reason | None
    seconds: float
    computed: bool = False


def extension_of(host: Host, finding: Finding) -> str:
    """Return the extension module of the package that a probe found, "" if none is listed or exists."""
    module = finding.imports[0] if finding.imports else ""
    patterns = EXTENSIONS.get(module, ())
    folder = os.path.dirname(module_location(host, module)) if patterns else ""
    paths = (path for pattern in patterns for path in host.glob(f"{folder}/{pattern}"))
    return next((path for path in paths if path.endswith(_ENDINGS)), "") if folder else ""


def opened(name: str, module: str, report: ProbeReport) -> ProbeReport:
    """Return the report of a package whose extension module was opened."""
    facts = {**report.facts, "imports": {module: OPENED}}
    if report.presence is not Presence.FOUND or report.reasons:
        return replace(report, facts=facts)
    why = f"its extension module opens; `backends info {name}` and `backends doctor` import it"
    reasons = (Reason("not-computed", why),)
    return replace(report, facts=facts, presence=Presence.LOADABLE, reasons=reasons)


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
        (name, module, getattr(modules[name], "CHECK", "") * (module == finding.imports[0]))
        for name, finding in findings.items()
        if name in reports
        for module in finding.imports
    ]
    tasks.sort(key=lambda task: not task[2])  # big ones first
    left = [name for name, *_ in tasks]
    results: dict[str, list[_Result]] = {}

    def run(task: tuple[str, str, str]) -> list[_Result]:
        return [_result(*task, host, timeout, task[0] in deep)]

    if left:
        progress(left[0])
    # Few at once: each may take a gigabyte.
    for result in side_by_side(run, tasks, min(4, (os.cpu_count() or 1) + 1)):
        results.setdefault(result.probe, []).append(result)
        left.remove(result.probe)
        if left:
            progress(left[0])
    return {
        name: _with_results(name, modules[name], reports[name], results[name]) for name in results
    }


def _result(probe: str, module: str, check: str, host: Host, timeout: float, deep: bool) -> _Result:
    """Import one module, and run the check of its probe."""
    executable = str(host.python.get("executable", ""))
    limit, seal = timeout * (COMPUTE_TIMES if deep else IMPORT_TIMES), os.urandom(8).hex()
    start = time.perf_counter()
    command = (executable, "-c", _FRAME % (deep, STARTS, seal, module, check))
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
                return _Result(probe, module, answer.facts, reason, seconds, answer.computed)
    if outcome.status is None and not outcome.timed_out:
        reason = Reason("not-asked", f"{executable} could not be started")
    else:
        doing = f"import {module} " + "and computing " * bool(deep and check)
        reason = reason_of(outcome.status, limit, outcome.output.encode(), doing)
    return _Result(probe, module, {}, reason, seconds)


def _with_results(
    name: str, probe: ModuleType, report: ProbeReport, results: list[_Result]
) -> ProbeReport:
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
        if "computed = True" in getattr(probe, "CHECK", ""):
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
