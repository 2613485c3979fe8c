"""A command, run with tracing on: from where its lines go to what is told at the end."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from mlbackends.launch.notices import Notice, warning
from mlbackends.model import registry
from mlbackends.model.errors import BadInput
from mlbackends.tracing.capture import environment as variables
from mlbackends.tracing.capture import process as processes
from mlbackends.tracing.capture import programs
from mlbackends.tracing.capture.captured import Captured
from mlbackends.tracing.capture.following import Follower
from mlbackends.tracing.capture.outcome import outcome
from mlbackends.tracing.capture.ranks import rank_of, with_rank
from mlbackends.tracing.capture.refusals import TRACE, require_sound
from mlbackends.tracing.capture.separation import SEPARATIONS, Separation, separation_for
from mlbackends.tracing.capture.special_file import copied, is_special, opened
from mlbackends.tracing.capture.trace_file import TraceFile

_BEAT_SECONDS = 0.5
_LIVE_BEAT_SECONDS = 0.1

Live = Callable[[list[bytes]], None]


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
    rank_variables: variables that hold a rank; each rank then has its own file, see `ranks`.
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
    require_sound(output, components, environment)
    program = programs.found(command, environment)
    rank = rank_of(environment, rank_variables)
    path = with_rank(output, rank)
    names = () if rank or is_special(path) else tuple(rank_variables)
    leaves = {name: registry.load("mlbackends.tracing.formats", name) for name in tracers}
    with ExitStack() as stack:
        folder = _private_folder(stack)
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
        captured = outcome(code, trace, markers, separated, seconds, is_filtered=is_filtered)
        captured = replace(captured, notices=(*notices, *captured.notices, *complaints))
        if in_between:
            return copied(captured, special, path, markers)
        trace.remove_if_only_ranks()
        return captured


def _private_folder(stack: ExitStack) -> str:
    try:
        return stack.enter_context(
            tempfile.TemporaryDirectory(prefix="backends-trace-", ignore_cleanup_errors=True)
        )
    except OSError as error:
        raise BadInput(f"no temporary folder can be made: {error.strerror}") from None


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
