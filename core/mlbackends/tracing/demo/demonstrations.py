"""A real trace of what is installed: which copies there are, and a few calls of each, captured.

for each in demonstrations(("mkl", "onednn")):
    capture.run(each.command, each.tracers, "demo.log", append=True)
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import Struct

from mlbackends.base.errors import NoBackend
from mlbackends.model.records import Presence
from mlbackends.tracing import LIBRARIES

if TYPE_CHECKING:
    from mlbackends.model.records import Report

_TO_INSTALL = {
    "onednn": "pip install onednn-cpu-gomp  (40 MB)",
    "mkl": "pip install mkl  (220 MB)",
}
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}\n"
    "from mlbackends.tracing.demo import {name}_calls as calls; calls.main({library!r})"
)


#: For an installed torch: layers that its oneDNN runs, and products that its MKL runs.
TORCH_PROGRAM = """
import torch

torch.manual_seed(0)
images = torch.randn(8, 16, 56, 56)
layers = torch.nn.Sequential(
    torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, padding=1)
)
half = torch.nn.Linear(256, 256).to(torch.bfloat16)
square, vector = torch.randn(512, 512), torch.randn(64, 256, dtype=torch.bfloat16)
with torch.no_grad():
    for _ in range(5):
        layers(images)
        half(vector)
        square @ square
        torch.linalg.lu_factor(square)
        torch.fft.fft(square[0])
"""


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
    shown, in_torch, problems = [], [], []
    for name in tracers:
        probe = report.probes[name]
        own = [each for each in probe.libraries if "torch" not in os.path.basename(each.path)]
        library = next((each for each in own if each.presence is Presence.USABLE), None)
        if library is not None:
            program = _PROGRAM.format(path=sys.path, name=name, library=library.path)
            # With 64-bit integers, which it may have been set to, calls would read beyond their arguments.
            variables = {"MKL_INTERFACE_LAYER": "LP64"} if name == "mkl" else {}
            library_name = f"{LIBRARIES[name]} {library.version} ({library.path})"
            command = (sys.executable, "-c", program)
            shown.append(Demonstration((name,), library_name, command, variables))
        elif len(own) < len(probe.libraries):
            in_torch.append(name)
        reasons = [*probe.reasons, *(why for each in probe.libraries for why in each.reasons)]
        why = reasons[0].message if reasons else "none is installed"
        problems.append(f"no {LIBRARIES[name]} can be called here: {why}")
    if in_torch and find_spec("torch") is not None:
        library_name = f"the {' and '.join(LIBRARIES[name] for name in in_torch)} inside torch"
        program = f"import sys; sys.path[:] = {sys.path!r}\n{TORCH_PROGRAM}"
        shown.append(Demonstration(tuple(in_torch), library_name, (sys.executable, "-c", program)))
    if not shown:
        hint = " or ".join(_TO_INSTALL[name] for name in tracers)
        raise NoBackend("; ".join(problems), hint=hint)
    return shown
