"""The availability of libraries that torch.backends asks for, found out once a process.

True means that the library was opened in a child process and answered, or computed a correct result.
Records and probes are imported when a question is asked: reading a switch needs neither.
"""

import importlib.machinery
import os
import sys
from functools import cache
from typing import TYPE_CHECKING

from mlbackends.base.mounts import call_or, mount_of

if TYPE_CHECKING:
    from mlbackends.model.records import ProbeReport


@cache
def found_report(name: str) -> "ProbeReport":
    """Return what a probe sees in files and the environment; nothing is opened."""
    from mlbackends.model.records import Presence
    from mlbackends.survey import survey

    return survey((name,), depth=Presence.FOUND).probes[name]


@cache
def used_report(name: str) -> "ProbeReport":
    """Return what a probe learns by opening the library and computing with it, in a child process."""
    from mlbackends.survey import survey

    return survey((name,)).probes[name]


def is_found(name: str) -> bool:
    """Return whether a file, package or device of that name is present."""
    return found_report(name).presence not in (None, "absent")


@cache
def is_available(name: str) -> bool:
    """Return whether it computed a correct result, or opens and answers if no check computes with it."""
    if not is_found(name):
        return False
    from mlbackends.base.reasons import UNCHECKED

    report = used_report(name)
    if report.presence == "loadable":
        reasons = [*report.reasons, *(reason for lib in report.libraries for reason in lib.reasons)]
        return any(reason.code in UNCHECKED for reason in reasons)
    return report.presence == "usable"


@cache
def opens(name: str) -> bool:
    """Return whether it opens and reports its version, with or without a device."""
    return is_found(name) and used_report(name).presence in ("loadable", "usable")


@cache
def version(name: str) -> str:
    """Return the version that the winning copy reports, "" if none opens."""
    return used_report(name).version if opens(name) else ""


@cache
def is_importable(name: str) -> bool:
    """Return whether this process would find a top-level Python package, without importing it."""
    if name in sys.modules:
        return sys.modules[name] is not None
    folders = [at for at in sys.path if not mount_of(at) or call_or(False, os.path.exists, at)]
    return importlib.machinery.PathFinder.find_spec(name, folders) is not None
