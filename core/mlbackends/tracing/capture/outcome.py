"""What is told of a capture at its end."""

import os
import signal
from collections.abc import Mapping, Sequence

from mlbackends.launch.notices import Notice, warning
from mlbackends.tracing.capture.captured import Captured
from mlbackends.tracing.capture.counts import Counted
from mlbackends.tracing.capture.separation import Separation
from mlbackends.tracing.capture.trace_file import TraceFile, counted

_NAMES = {"mkl": "MKL", "onednn": "oneDNN"}


def outcome(
    code: int,
    trace: TraceFile,
    markers: Mapping[str, Sequence[bytes]],
    separated: Separation,
    seconds: float,
    *,
    is_filtered: bool,
) -> Captured:
    """Return the record of a command that ended.

    code: -N where signal N ended it. is_filtered: oneDNN prints some of its components only.
    """
    on_the_way = separated.counted()
    parts = trace.parts()
    try:
        totals = counted(parts, markers)
        problem = "" if parts else "it was removed while the command ran"
    except OSError as error:
        parts, totals = [], dict.fromkeys(["", *markers], 0)
        problem = f"it cannot be read any more: {error.strerror}"
    lines = totals.pop("")
    may_be_silent = code == 0 and not on_the_way.lost and not problem
    return Captured(
        exit_code=code if code >= 0 else 128 - code,
        files=tuple(path for path, _ in parts),
        lines=lines,
        lines_by_tracer=totals,
        lost=on_the_way.lost,
        processes=on_the_way.processes,
        separation=separated.name,
        seconds=seconds,
        notices=(
            *separated.notices,
            *([warning(f"the trace {trace.path} is gone: {problem}")] if problem else ()),
            *_ending(code, lines),
            *_losses(on_the_way, trace, writes_itself="mkl" in markers),
            *(_silences(totals, separated.name, is_filtered) if may_be_silent else ()),
        ),
    )


def _ending(code: int, lines: int) -> list[Notice]:
    if code >= 0:
        return []
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return [warning(f"the command was ended by {name}; the {lines} lines until then are kept")]


def _losses(on_the_way: Counted, trace: TraceFile, *, writes_itself: bool) -> list[Notice]:
    """Tell of lines that are not in the trace. writes_itself: MKL does, and tells nobody."""
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
    """Tell of libraries that printed nothing: absent, not used, or built without tracing."""
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
