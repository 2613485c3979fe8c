"""What became of a command that was run with tracing on."""

from msgspec import Struct

from mlbackends.launch.notices import Notice


class Captured(Struct, frozen=True, kw_only=True):
    """The outcome.

    exit_code: the command's own; 128 + N where signal N ended it.
    files: the trace, several where each rank has its own; () where none was to be written.
    lines, lines_by_tracer: how many there are in these files from this run.
    lost: lines that were printed and could not be written, the disk being full for example.
    processes: how many printed lines; 0 where that cannot be told.
    separation: how lines were kept apart from the program's text: "preload" (a shim in the program),
        "terminal", "pipe", or "none" (the library writes the file itself).
    seconds: how long the command ran.
    notices: what should be told, each a level and a sentence.
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
