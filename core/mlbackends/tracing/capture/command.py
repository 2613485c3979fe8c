"""Any command, run with its libraries' tracing on: its own streams stay its own, the trace is a file.

    captured = run(["python", "train.py"], ("onednn",), "trace.log")
    captured.exit_code, captured.files, captured.lines

A line of the file is the library's, behind a stamp where the capture knows who printed it:
"[pid P tid T end NS] ", with the time in nanoseconds since the epoch.
"""

import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from msgspec import Struct

from mlbackends.base import registry
from mlbackends.base.errors import BadInput
from mlbackends.base.notices import Notice, warning
from mlbackends.host.command import ending
from mlbackends.tracing import LIBRARIES
from mlbackends.tracing.capture import environment as variables
from mlbackends.tracing.capture.separation import Counted, separation_for
from mlbackends.tracing.capture.trace_file import TraceFile, counted
from mlbackends.tracing.filters import PATTERN_HINT

#: The variable that a traced command finds: where its trace goes.
TRACE = "MLBACKENDS_TRACE_FILE"
if os.name != "nt":
    from mlbackends.tracing.capture import process as processes
else:
    from mlbackends.tracing.capture import windows as processes  # type: ignore[no-redef]

_BEAT_SECONDS = 0.5
# Python knows these, and oneDNN, whose expressions are ECMAScript's, does not.
_PYTHONS_OWN = re.compile(r"(?<!\\)\(\?[^:=!]")


class Captured(Struct, frozen=True, kw_only=True):
    """What became of a command that was run with tracing on.

    exit_code: the command's own; 128 + N where signal N ended it.
    files: the trace, several where each rank has its own; () where none was to be written.
    lines, lines_by_tracer: how many there are in these files from this run.
    lost: lines that were printed and could not be written, the disk being full for example.
    processes: how many printed lines; 0 where that is not known.
    separation: how lines were kept apart from the program's text: "preload" (a shim in the program),
        "terminal", "pipe", or "none" (the library writes the file itself).
    seconds: how long the command ran.
    notices: what should be reported, each a level and a sentence.
    """

    exit_code: int
    files: tuple[str, ...]
    lines: int = 0
    lines_by_tracer: dict[str, int] = {}
    lost: int = 0
    processes: int = 0
    separation: str = "none"
    seconds: float = 0.0
    notices: tuple[Notice, ...] = ()


def run(
    command: Sequence[str],
    tracers: Sequence[str],
    output: str,
    *,
    level: str = "create",
    components: str = "",
    timestamps: bool = True,
    separation: str = "auto",
    append: bool = False,
    rank_variables: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    shim: str | None = None,
) -> Captured:
    """Run a command to its end; its streams, terminal and signals are its own. Return what came.

    output: the file that the trace goes to; replaced, unless `append`.
    level, components, timestamps: what oneDNN prints, as its tracer's `environment` has it.
    separation: "preload", "terminal", "pipe" or "none"; "auto" takes the shim where there is one that
        fits, else for oneDNN a terminal if stdout is one and a pipe if not. MKL alone needs none.
    rank_variables: variables that hold a rank; each rank then has its own file, see `with_rank`.
    environment: for the command; ours by default. shim: its file; by default the installed one.
    Raises NotStarted (its exit_code is 126 or 127), and BadInput where the trace cannot be written,
    below another capture, or for a filter that is none; all before the command runs.
    """
    environment = dict(os.environ if environment is None else environment)
    _require_sound(output, components, environment)
    program = processes.executable(command, environment)
    rank = variables.rank_of(environment, rank_variables)
    target = variables.with_rank(output, rank)
    leaves = {name: registry.load("mlbackends.tracing.formats", name) for name in tracers}
    with ExitStack() as stack:
        ranks = () if rank else tuple(rank_variables)
        trace = stack.enter_context(TraceFile(target, append=append, of_ranks=bool(ranks)))
        requested: dict[str, str] = {}
        for leaf in leaves.values():
            requested |= leaf.environment(
                level=level, timestamps=timestamps, components=components, file=trace.path
            )
        changed, notices = variables.combined(requested, environment)
        environment = variables.of_command({**environment, **changed})
        markers = {name: leaf.MARKERS for name, leaf in leaves.items()}
        separated = separation_for(
            separation, program[0], trace.descriptor, markers, environment, shim, ranks
        )
        stack.callback(separated.close)
        environment |= {TRACE: trace.path, **separated.variables}
        notices += separated.notices
        started = time.monotonic()
        with processes.signals() as signals:
            process = separated.start(partial(processes.start, program, environment, signals.mask))
            code = processes.wait(process, signals, _BEAT_SECONDS, partial(separated.resize, process))
            complaints = separated.finish()
        seconds = time.monotonic() - started
        parts = trace.parts()
        try:
            totals = counted(parts, markers)
        except OSError:
            parts, totals = [], counted([], markers)
        on_the_way = separated.counted()
        if not parts:
            why = "it was removed while the command ran, or cannot be read any more"
            notices.append(warning(f"the trace {trace.path} is gone: {why}"))
        notices += _losses(code, on_the_way, trace, totals)
        if code == 0 and parts and not on_the_way.lost:
            is_filtered = "filter=" in environment.get("ONEDNN_VERBOSE", "")
            notices += _silences(totals, separated.name, on_the_way, is_filtered=is_filtered)
        removed = trace.path if trace.remove_if_empty() else ""
    return Captured(
        exit_code=code if code >= 0 else 128 - code,
        files=tuple(path for path, _ in parts if path != removed),
        lines=totals.pop(""),
        lines_by_tracer=totals,
        lost=on_the_way.lost,
        processes=on_the_way.processes,
        separation=separated.name,
        seconds=seconds,
        notices=(*notices, *complaints),
    )


def _require_sound(output: str, components: str, environment: Mapping[str, str]) -> None:
    """Raise BadInput where a trace could not come, whatever the command does."""
    if not output:
        raise BadInput("the trace has no file name")
    if output == "-":
        raise BadInput(
            "the trace cannot go to standard output: the command itself uses that",
            "name a file; one of that name is ./-",
        )
    if other := environment.get(TRACE, ""):
        raise BadInput(
            f"this already runs under `backends trace`, which writes to {other}",
            "one capture can record both libraries: backends trace all",
        )
    # oneDNN ignores an expression that it cannot read: it then prints as if there were no filter.
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(components)
    except re.error as error:
        problem = str(error)
    else:
        own = _PYTHONS_OWN.search(components)
        problem = f"oneDNN has no {own[0]}" if own else ""
    if problem:
        message = f"--components is not a regular expression: {components!r}: {problem}"
        raise BadInput(message, PATTERN_HINT)


def _losses(code: int, on_the_way: Counted, trace: TraceFile, totals: Mapping[str, int]) -> Iterator[Notice]:
    """Report what ended the command where it did not end itself, and lines that are not in the trace."""
    kind, how = ending(code)
    if kind == "crashed":
        recorded = f"; the {totals['']} lines until then are kept" if totals[""] else ""
        yield warning(f"the command was ended by {how}{recorded}")
    if on_the_way.lost:
        why = os.strerror(on_the_way.lost_reason)
        yield warning(f"{on_the_way.lost} lines could not be written to the trace: {why}")
    elif "mkl" in totals and trace.is_disk_full():  # it reports no loss
        yield warning("the disk is full; what MKL wrote last may be lost")
    if on_the_way.unreachable:
        place = "the output of processes that could not open the trace"
        yield warning(f"{on_the_way.unreachable} lines went to {place}")
    if trace.is_shared:
        yield warning(
            f"another capture was writing to {trace.path}; these lines are mixed with its own"
            " (name the rank variable for separate files)"
        )


def _silences(
    totals: Mapping[str, int], separation: str, on_the_way: Counted, *, is_filtered: bool
) -> list[Notice]:
    """Report libraries that printed nothing: absent, not used, or built without tracing."""
    silent = [LIBRARIES.get(name, name) for name in totals if name]
    if any(totals.values()) or (separation == "none" and "onednn" in totals):
        return []  # unseparated, oneDNN's lines are in the command's output
    why = "the command does not use it, or uses a build that prints nothing"
    loaded = {"OpenBLAS": on_the_way.with_openblas, "BLIS": on_the_way.with_blis}
    more = " and ".join(name for name, count in loaded.items() if count)
    if more and "mkl" in totals and not on_the_way.with_mkl:
        why = f"the command has {more} loaded, which prints nothing, and no libmkl"
    if is_filtered and "onednn" in totals:
        why = f"the filter of components may have left all out, or {why}"
    if separation == "preload" and "onednn" in totals:
        why += (
            ", or in a child program that the preloaded library cannot reach: a static or setuid one"
            " (--separation pipe does), or one without our variables (env -i, sudo)"
        )
    return [warning(f"{' and '.join(silent)} printed no line: {why}")]
