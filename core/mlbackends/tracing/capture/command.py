"""Any command, run with its libraries' tracing on: its own streams stay its own, the trace is a file.

    captured = run(["python", "train.py"], ("onednn",), "trace.log")
    captured.exit_code, captured.files, captured.lines

A line of the file is the library's, behind a stamp where the capture knows who printed it:
"[pid P tid T end NS] ", with the time in nanoseconds since the epoch.
"""

import os
import re
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.launch.notices import Notice, warning
from mlbackends.model import registry
from mlbackends.model.errors import BadInput
from mlbackends.tracing.capture import environment as variables
from mlbackends.tracing.capture import process as processes
from mlbackends.tracing.capture.preload import Counted
from mlbackends.tracing.capture.separation import SEPARATIONS, Separation, separation_for
from mlbackends.tracing.capture.trace_file import (
    Follower,
    TraceFile,
    copied,
    counted,
    is_special,
    opened,
)

TRACE = "MLBACKENDS_TRACE_FILE"
"""The variable that a traced command finds: where its trace goes."""
_BEAT_SECONDS = 0.5
_LIVE_BEAT_SECONDS = 0.1
_NAMES = {"mkl": "MKL", "onednn": "oneDNN"}
# Python knows these, and oneDNN, whose expressions are ECMAScript's, does not.
_PYTHONS_OWN = re.compile(r"(?<!\\)\(\?[^:=!]")
Live = Callable[[list[bytes]], None]


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
    live: Live | None = None,
    environment: Mapping[str, str] | None = None,
    shim: str | None = None,
) -> Captured:
    """Run a command to its end; its streams, terminal and signals are its own. Return what came.

    output: where the trace goes; replaced, unless `append`. What is no regular file, such as
        /dev/stderr or a FIFO with a reader, gets the whole trace at the end.
    level, components, timestamps: what oneDNN prints, as its tracer's `environment` has it.
    separation: one of SEPARATIONS; "auto" takes the shim where there is one that fits, else for
        oneDNN a terminal if stdout is one and a pipe if not. MKL alone needs none of them.
    rank_variables: variables that hold a rank; each rank then has its own file, see `with_rank`.
    live: is given new lines, in this thread, while the command runs: ten times a second, though
        there be none, so that it can show what it has and tell the time.
    environment: for the command; ours by default. shim: its file; by default the installed one.
    Raises NotStarted (its exit_code is 126 or 127), and BadInput where the trace cannot be written,
    below another capture, or for a filter that is none; all before the command runs.
    """
    if separation not in SEPARATIONS:
        raise BadInput(f"separation is {separation!r}; it may be {', '.join(SEPARATIONS)}")
    if not command or not tracers:
        raise BadInput(f"there is no {'tracer to trace with' if command else 'command to trace'}")
    environment = dict(os.environ if environment is None else environment)
    _require_sound(output, components, environment)
    program = processes.executable(command, environment)
    rank = variables.rank_of(environment, rank_variables)
    path = variables.with_rank(output, rank)
    names = () if rank or is_special(path) else tuple(rank_variables)
    leaves = {name: registry.load("mlbackends.tracing.formats", name) for name in tracers}
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="backends-trace-", ignore_cleanup_errors=True)
            )
        except OSError as error:
            raise BadInput(f"no temporary folder can be made: {error.strerror}") from None
        in_between = os.path.join(folder, "trace.log") if is_special(path) else ""
        special = opened(path) if in_between else -1
        if in_between:
            stack.callback(os.close, special)
        trace = TraceFile(in_between or path, append=append, of_ranks=bool(names))
        stack.enter_context(trace)
        wanted: dict[str, str] = {}
        for leaf in leaves.values():
            wanted |= leaf.environment(
                level=level, timestamps=timestamps, components=components, file=trace.path
            )
        notices = variables.given_way(wanted, environment)
        environment |= variables.combined(wanted, environment)
        markers = {name: leaf.MARKERS for name, leaf in leaves.items()}
        separated = separation_for(
            separation, program[0], trace, markers, environment, folder, shim
        )
        stack.callback(separated.close)
        environment |= {TRACE: trace.path, **separated.variables(names)}
        if names and separated.name != "preload":
            notices.append(warning("ranks share one trace: only the shim can tell them apart"))
        started = time.monotonic()
        code, complaints = _run(program, environment, separated, trace, live)
        seconds = time.monotonic() - started
        is_filtered = "filter=" in environment.get("ONEDNN_VERBOSE", "")
        captured = _outcome(code, trace, markers, separated, is_filtered=is_filtered)
        captured = replace(
            captured, seconds=seconds, notices=(*notices, *captured.notices, *complaints)
        )
        if in_between:
            return _written(captured, special, path, markers)
        trace.remove_if_only_ranks()
        return captured


def _require_sound(output: str, components: str, environment: Mapping[str, str]) -> None:
    """Raise BadInput where a trace could not come, whatever the command does."""
    if not output:
        raise BadInput("no file is named for the trace")
    if output == "-":
        raise BadInput(
            "the trace cannot go to standard output: that is the command's own",
            "name a file, or /dev/stderr; a file of that name is ./-",
        )
    if other := environment.get(TRACE, ""):
        raise BadInput(
            f"this already runs under `backends trace`, which writes to {other}",
            "one capture takes both libraries: backends trace all",
        )
    # oneDNN ignores an expression that it cannot read: it then prints as if there were no filter.
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(components)
    except re.error as error:
        problem = str(error)
    else:
        own = _PYTHONS_OWN.search(components)
        problem = f"oneDNN knows no {own[0]}" if own else ""
    if problem:
        raise BadInput(f"components is no regular expression: {components!r}: {problem}")


def _run(
    program: Sequence[str],
    environment: Mapping[str, str],
    separated: Separation,
    trace: TraceFile,
    live: Live | None,
) -> tuple[int, list[Notice]]:
    """Run the program to its end. Return its code, -N for signal N, and what went wrong for us."""
    watcher = _Watcher(live, Follower(trace.parts)) if live else None
    with processes.signals() as signals:
        separated.start()
        process = processes.start(program, environment, signals.mask, separated.child_stdout)
        separated.has_started()
        is_running = True

        def on_beat() -> None:
            separated.resize(process)
            if watcher:
                watcher.look()

        try:
            beat = _LIVE_BEAT_SECONDS if watcher else _BEAT_SECONDS
            code = processes.wait(process, signals, beat, on_beat)
            is_running = False
        finally:
            if is_running:
                processes.end(process)
        complaints = separated.finish()
    if watcher:
        watcher.look()
        complaints += watcher.complaints
    return code, complaints


class _Watcher:
    """Hands new lines to a callback, or none when there are none; one that fails is not called again."""

    def __init__(self, live: Live, follower: Follower) -> None:
        self.complaints: list[Notice] = []
        self._live: Live | None = live
        self._follower = follower

    def look(self) -> None:
        while self._live:
            lines = self._follower.new_lines()
            try:
                self._live(lines)
            except Exception as error:  # noqa: BLE001  a table that cannot be drawn ends no command
                self.complaints.append(
                    warning(f"the lines were no longer shown: {type(error).__name__}: {error}")
                )
                self._live = None
            if not lines:
                return


def _outcome(
    code: int,
    trace: TraceFile,
    markers: Mapping[str, Sequence[bytes]],
    separated: Separation,
    *,
    is_filtered: bool,
) -> Captured:
    """Return the record of a command that ended.

    code: -N where signal N ended it. is_filtered: oneDNN prints some of its components only.
    """
    on_the_way = separated.counted()
    parts = trace.parts()
    notices = list(separated.notices)
    try:
        totals = counted(parts, markers)
        problem = "" if parts else "it was removed while the command ran"
    except OSError as error:
        parts, totals = [], dict.fromkeys(["", *markers], 0)
        problem = f"it cannot be read any more: {error.strerror}"
    if problem:
        notices.append(warning(f"the trace {trace.path} is gone: {problem}"))
    lines = totals.pop("")
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        notices.append(
            warning(f"the command was ended by {name}; the {lines} lines until then are kept")
        )
    notices += _losses(on_the_way, trace, writes_itself="mkl" in markers)
    if code == 0 and not on_the_way.lost and not problem:
        notices += _silences(totals, separated.name, is_filtered)
    return Captured(
        exit_code=code if code >= 0 else 128 - code,
        files=tuple(path for path, _ in parts),
        lines=lines,
        lines_by_tracer=totals,
        lost=on_the_way.lost,
        processes=on_the_way.processes,
        separation=separated.name,
        notices=tuple(notices),
    )


def _losses(on_the_way: Counted, trace: TraceFile, *, writes_itself: bool) -> list[Notice]:
    """Report lines that are not in the trace. writes_itself: MKL does, and reports no loss."""
    notices = []
    if on_the_way.lost:
        why = os.strerror(on_the_way.lost_reason)
        notices.append(warning(f"{on_the_way.lost} lines could not be written to the trace: {why}"))
    elif writes_itself and not os.fstatvfs(trace.descriptor).f_bavail:
        notices.append(warning("the disk is full; what MKL wrote last may be lost"))
    if on_the_way.unreachable:
        notices.append(
            warning(
                f"{on_the_way.unreachable} lines went to the output of processes"
                " that could not open the trace"
            )
        )
    if trace.is_shared:
        notices.append(
            warning(
                f"another capture was writing to {trace.path}; these lines stand among its own"
                " (name the variable that holds a rank to have a file each)"
            )
        )
    return notices


def _silences(totals: Mapping[str, int], separation: str, is_filtered: bool) -> list[Notice]:
    """Report libraries that printed nothing: absent, not used, or built without tracing."""
    if any(totals.values()) or (separation == "none" and set(totals) != {"mkl"}):
        return []  # unseparated, oneDNN's lines are in the command's output
    silent = [_NAMES.get(name, name) for name in totals]
    why = "the command does not use it, or with a build that prints nothing"
    if is_filtered and "onednn" in totals:
        why = f"the filter of components may have left all out, or {why}"
    if separation == "preload" and "onednn" in totals:
        why += (
            ", or in a program of its that the shim does not reach: a static or setuid one"
            " (--separation pipe does), or one without our variables (env -i, sudo)"
        )
    return [warning(f"no line of {' or '.join(silent)} came: {why}")]


def _written(
    captured: Captured, descriptor: int, target: str, markers: Mapping[str, Sequence[bytes]]
) -> Captured:
    """Write the trace to a target that is no regular file; return the record of what that took."""
    if not captured.files:
        return captured
    (source,) = captured.files
    written, problem = copied(source, descriptor, target)
    if written is None:
        return replace(captured, files=(target,))
    os.truncate(source, written)
    totals = counted([(source, 0)], markers)
    whole = totals.pop("")
    return replace(
        captured,
        files=(target,) if written else (),
        lines=whole,
        lines_by_tracer=totals,
        lost=captured.lost + captured.lines - whole,
        notices=(*captured.notices, *([warning(problem)] if problem else ())),
    )
