"""A trace that goes to what is no regular file, such as /dev/stderr or a FIFO: whole, at the end."""

import errno
import os
import stat
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mlbackends.launch.notices import warning
from mlbackends.model.errors import BadInput
from mlbackends.tracing.capture.captured import Captured
from mlbackends.tracing.capture.trace_file import counted, unwritable

_PIECE_BYTES = 1 << 20


def is_special(path: str) -> bool:
    """Tell whether a path is there and is no regular file, such as /dev/stderr or a FIFO."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def opened(path: str) -> int:
    """Return a descriptor to write to, before the command runs, so that a FIFO keeps its reader.

    Raises BadInput where it cannot be written; a FIFO that nobody reads is not waited for.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(os.stat(path).st_mode):
            raise BadInput(f"nobody reads the FIFO {path}", "start its reader first") from None
        raise unwritable(path, error) from None
    os.set_blocking(descriptor, True)
    return descriptor


def copied(
    captured: Captured, descriptor: int, target: str, markers: Mapping[str, Sequence[bytes]]
) -> Captured:
    """Write the trace to its target, and return the record of what that took."""
    if not captured.files:
        return captured
    (source,) = captured.files
    written = 0
    notices = list(captured.notices)
    try:
        with open(source, "rb", buffering=0) as lines:
            while piece := lines.read(_PIECE_BYTES):
                while piece:
                    count = os.write(descriptor, piece)
                    written += count
                    piece = piece[count:]
    except BrokenPipeError:  # its reader has seen enough
        pass
    except OSError as error:
        notices.append(warning(str(unwritable(target, error))))
    else:
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
        notices=tuple(notices),
    )
