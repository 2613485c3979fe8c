"""What the interpreter of a home-made environment really does, each thing in a process of its own.

Reads from standard input what to import and what to open, and writes what came of it; environments.py starts
it under LD_DEBUG. It must run in any Python, and maps nothing that a bare interpreter does not map.
"""

from __future__ import annotations

import os
import signal
import sys

del sys.path[0]
import _imp  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
from importlib.machinery import ModuleSpec  # noqa: E402
from typing import Any  # noqa: E402

SECONDS = 120


def mapped() -> list[str]:
    """Return the ELF files that this process has mapped, in no certain order."""
    found = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            parts = line.rstrip("\n").split(None, 5)
            if len(parts) == 6 and parts[5].startswith("/") and int(parts[2], 16) == 0:
                path = parts[5]
                if path not in found:
                    try:
                        with open(path, "rb") as file:
                            found[path] = file.read(4) == b"\x7fELF"
                    except OSError:
                        found[path] = False
    return [path for path, is_elf in found.items() if is_elf]


def words(error: BaseException | None) -> str:
    """Return the words of an exception and of what led to it."""
    seen: list[str] = []
    while error and len(seen) < 20:
        seen.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(seen)


def opened(path: str) -> str:
    """Open a shared object as Python opens extension modules, calling nothing; return the failure's words."""
    try:
        _imp.create_dynamic(ModuleSpec("no_such_name", None, origin=path))
    except ImportError as error:
        return "" if "does not define module export function" in str(error) else str(error)
    return ""


def imported(module: str) -> str:
    """Import a module; return what it fails with."""
    try:
        importlib.import_module(module)
    except BaseException as error:  # noqa: BLE001
        return words(error) or "failed"
    return ""


def apart(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job in a child process and return its answer."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(SECONDS)
        before = mapped()
        error = imported(job["import"]) if "import" in job else opened(job["open"])
        answer = {"error": error, "before": before, "mapped": mapped()}
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    answer = (
        json.loads(text) if text else {"error": f"ended with status {status}", "before": [], "mapped": []}
    )
    return {**answer, "pid": child}


def main() -> None:
    """Do all jobs; those that want the same modules imported first share the process that has them."""
    after, jobs = json.load(sys.stdin)
    null = os.open(os.devnull, os.O_WRONLY)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(null, 1)
    error = ""
    for module in after:
        error = error or imported(module)
    json.dump({"error": error, "jobs": [] if error else [apart(job) for job in jobs]}, out)
    out.flush()
    os._exit(0)


main()
