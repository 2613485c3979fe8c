"""Import a package in a separate interpreter, compute with it, and add the result to its probe's report.

The probe's CHECK is Python source. It runs in the interpreter that is inspected, as a user's program would,
and leaves its facts in `facts`, which the probe's `learned` reads, if it has one; `fail(code, message)`
ends it.
"""

import time
from types import ModuleType
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.host.command import ending, outcome_of
from mlbackends.host.host import Host
from mlbackends.model.records import Presence, ProbeReport, speaking_copy

#: To import a framework from a slow disk takes as long.
LEAST_SECONDS = 60.0

_FRAME = """
import sys
if sys.path and sys.path[0] == "":  # before Python 3.11: a json.py there is not ours to import
    del sys.path[0]
import json, os
output = os.dup(1)
os.dup2(2, 1)
facts = {}
def end(reason):
    os.write(output, json.dumps({"facts": facts, "reason": reason}).encode())
    os._exit(0)
def fail(code, message):
    end([code, message])
try:
    exec(%r, globals())
except BaseException as error:
    fail("call-failed", f"{type(error).__name__}: {error}"[:2000])
end(None)
"""


class _Result(msgspec.Struct):
    facts: dict[str, Any]
    reason: tuple[str, str] | None


def computed(
    name: str, module: ModuleType, report: ProbeReport, host: Host, timeout: float
) -> ProbeReport:
    """Return a probe's report with what came of its check. timeout: seconds, LEAST_SECONDS at least."""
    executable = str(host.python.get("executable", ""))
    limit = max(timeout, LEAST_SECONDS)
    start = time.perf_counter()
    outcome = outcome_of((executable, "-c", _FRAME % module.CHECK), limit, host.environment)
    facts: dict[str, Any] = {}
    reason: tuple[str, str] | None
    try:
        result = msgspec.json.decode(outcome.output, type=_Result)
        facts, reason = getattr(module, "learned", dict)(result.facts), result.reason
    except msgspec.DecodeError:
        if outcome.timed_out:
            reason = "timed-out", f"{name} did not compute within {limit:g} s in {executable}"
        elif outcome.status is None:
            reason = "not-asked", f"{executable} could not be started"
        else:
            kind, how = ending(outcome.status)
            how = how.removeprefix("exit ")
            reason = kind, f"importing {name} and computing ended with {how}"
    copy = speaking_copy(name, report.libraries)
    libraries = list(report.libraries)
    if reason is None and copy is not None:
        libraries[libraries.index(copy)] = replace(copy, presence=Presence.USABLE, reasons=())
    return replace(
        report,
        presence=report.presence if reason else Presence.USABLE,
        facts={**report.facts, **facts},
        libraries=tuple(libraries),
        reasons=(Reason(*reason),) if reason else (),
        duration_seconds=round(report.duration_seconds + time.perf_counter() - start, 6),
    )
