"""Run by tests/kernels/conftest.py: each program in a fork of one process that has imported the bindings.

Importing them takes most of a second. Each program needs a separate process, because environment variables
steer the stub libraries. A line of stdin is a program with its variables and output files; the answer is its
exit status.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import traceback
import warnings
from typing import Any


def run(task: dict[str, Any]) -> int:
    """Run a program as `python -c` does, and return its exit status."""
    os.environ.update(task["variables"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(task[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    try:
        exec(compile(task["program"], "<string>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:  # noqa: BLE001  the parent reads the traceback
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def main() -> None:
    # The bindings take what is loaded first, and else NVIDIA's own wheels, where those are installed.
    ctypes.CDLL("libnvrtc.so.13")
    for name in ("numpy", "cuda.core"):
        importlib.import_module(name)
    for line in sys.stdin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking while threads run
            child = os.fork()
        if not child:
            os._exit(run(json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
