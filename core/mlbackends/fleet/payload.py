"""The code that runs on a node: a command in a process group that is killed at its time limit.

Ray and Dask send this file and `mlbackends.host.command` to their workers by value, so that these need
only the program itself. Both import the standard library alone.
"""

import os
import sys
import tempfile
from collections.abc import Sequence

from mlbackends.host.command import ending, outcome_of

#: Set by Slurm, and usually by the downward API of Kubernetes.
_NAMES = ("SLURMD_NODENAME", "NODE_NAME")
_LAST_BYTES = 2000
_LONGEST_ERROR = 160


def node_name() -> str:
    """Return the name of this node."""
    for variable in _NAMES:
        if name := os.environ.get(variable):
            return name
    import platform

    return os.uname().nodename if hasattr(os, "uname") else platform.node()


def run(command: Sequence[str], seconds: float, given: bytes = b"") -> tuple[str, str, str, str]:
    """Run a command of this node.

    Returns the node's name, "ok", "timeout" or "error", the reason where the command did not end with 0, and
    its output. Does not wait for a process that hangs in a driver and cannot be killed.

    given: what the command gets on its standard input; it then also finds this Python, after those on PATH.
    """
    node = node_name()
    environment = dict(os.environ)
    if given:
        environment["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{os.path.dirname(sys.executable)}"
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        outcome = outcome_of(
            command, seconds, environment, errors.fileno(), inherits=True, given=file.fileno()
        )
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = errors.read(_LAST_BYTES).decode(errors="replace").split("\n")
    if outcome.timed_out:
        return node, "timeout", f"it did not finish within {seconds:g} s", ""
    if outcome.status is None:
        return node, "error", f"{command[0]} could not be started, or its output did not end", ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    detail = f": {last[:_LONGEST_ERROR]}" if last else ""
    if outcome.status:
        how, words = ending(outcome.status)
        return (
            node,
            "error",
            f"crashed: {words}{detail}" if how == "crashed" else words + detail,
            outcome.output,
        )
    return node, "ok", "", outcome.output
