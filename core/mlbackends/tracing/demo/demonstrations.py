"""A real trace of what is installed: which copies there are, and a few calls of each, captured.

for each in demonstrations(("mkl", "onednn")):
    capture.run(each.command, each.tracers, "demo.log", append=True)
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mlbackends.model.errors import NoBackend
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from mlbackends.model.records import Library, ProbeReport, Report

_NAMES = {"mkl": "MKL", "onednn": "oneDNN"}
_TO_INSTALL = {
    "onednn": "pip install onednn-cpu-gomp  (40 MB)",
    "mkl": "pip install mkl  (220 MB)",
}
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}\n"
    "from mlbackends.tracing.demo import {name}_calls as calls; calls.main({library!r})"
)


class Demonstration(Struct, frozen=True):
    """A program to be traced.

    tracers: what it calls. what: the libraries, for people. variables: what its environment must have.
    """

    tracers: tuple[str, ...]
    what: str
    command: tuple[str, ...]
    variables: dict[str, str] = {}


def demonstrations(tracers: Sequence[str], report: "Report | None" = None) -> list[Demonstration]:
    """Return a program for each tracer whose library is here, or one for torch that has several.

    report: what is here, by default of a survey, in which each copy computes something in a process
    of its own before it is taken. Raises NoBackend, which tells what to install, where there is none.
    """
    if report is None:
        from mlbackends.survey import survey

        report = survey(tuple(tracers), depth=Presence.USABLE)
    found = {name: _usable(report.probes[name]) for name in tracers}
    made = [_calls(name, library) for name, library in found.items() if library]
    left = tuple(name for name, library in found.items() if not library)
    in_torch = tuple(name for name in left if _is_in_torch(report.probes[name]))
    if in_torch and _has_torch():
        made.append(_of_torch(in_torch))
    if not made:
        raise _nothing(report, tracers)
    return made


def _usable(probe: "ProbeReport") -> "Library | None":
    """Return the first copy that computes and is a library of its own."""
    return next(
        (
            each
            for each in probe.libraries
            if each.presence is Presence.USABLE and "torch" not in os.path.basename(each.path)
        ),
        None,
    )


def _is_in_torch(probe: "ProbeReport") -> bool:
    return any("torch" in os.path.basename(each.path) for each in probe.libraries)


def _has_torch() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None


def _calls(tracer: str, library: "Library") -> Demonstration:
    program = _PROGRAM.format(path=sys.path, name=tracer, library=library.path)
    # With 64-bit integers, which it may have been set to, every call would read beyond its arguments.
    variables = {"MKL_INTERFACE_LAYER": "LP64"} if tracer == "mkl" else {}
    what = f"{_NAMES[tracer]} {library.version} ({library.path})"
    return Demonstration((tracer,), what, (sys.executable, "-c", program), variables)


def _of_torch(tracers: tuple[str, ...]) -> Demonstration:
    from mlbackends.tracing.demo.torch_program import PROGRAM

    what = f"the {' and '.join(_NAMES[name] for name in tracers)} inside torch"
    program = f"import sys; sys.path[:] = {sys.path!r}\n{PROGRAM}"
    return Demonstration(tracers, what, (sys.executable, "-c", program))


def _nothing(report: "Report", tracers: Sequence[str]) -> NoBackend:
    """Return what to raise where nothing can be shown: what was found, and what would help."""
    said = []
    for name in tracers:
        probe = report.probes[name]
        reasons = [*probe.reasons, *(why for each in probe.libraries for why in each.reasons)]
        why = reasons[0].message if reasons else "none is installed"
        said.append(f"no {_NAMES[name]} can be called here: {why}")
    return NoBackend("; ".join(said), hint=" or ".join(_TO_INSTALL[name] for name in tracers))
