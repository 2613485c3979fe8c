"""How trace lines are kept apart from the command's own output, and which way is taken."""

import errno
import os
from collections.abc import Mapping, Sequence

from mlbackends.launch.notices import Notice, information, warning
from mlbackends.model.errors import BadInput
from mlbackends.tracing.capture.counts import Counted, Counts
from mlbackends.tracing.capture.demultiplexer import Demultiplexer
from mlbackends.tracing.capture.preload import preload_value, shim_path, why_not
from mlbackends.tracing.capture.relaying import Relay
from mlbackends.tracing.capture.trace_file import TraceFile

SEPARATIONS = ("auto", "preload", "terminal", "pipe", "none")

Markers = Mapping[str, Sequence[bytes]]


class Separation:
    """No separation: the library itself writes the file, or prints into the command's output.

    child_stdout: what the command prints to; None for our own.
    """

    name = "none"
    child_stdout: int | None = None

    def __init__(self, notices: Sequence[Notice] = ()) -> None:
        self.notices = list(notices)

    def variables(self, rank_names: Sequence[str]) -> dict[str, str]:
        """Return what the command's environment needs in addition."""
        del rank_names
        return {}

    def start(self) -> None:
        """Get ready; signals are blocked."""

    def has_started(self) -> None:
        """Take note that the command has its end of the output."""

    def resize(self, process: int) -> None:
        """Take over a new size of our terminal."""

    def finish(self) -> list[Notice]:
        """Bring in what is on its way, the command having ended; tell what went wrong."""
        return []

    def counted(self) -> Counted:
        """Return what was counted on the way; zeros where nothing is."""
        return Counted(0, 0, 0, 0, 0)

    def close(self) -> None:
        """Let go of everything."""


class Preloaded(Separation):
    """A shim in each process of the command takes the lines out before they are printed."""

    name = "preload"

    def __init__(
        self,
        shim: str,
        folder: str,
        markers: Markers,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._counts = Counts(folder)
        words = b"\n".join(marker for each in markers.values() for marker in each)
        self._variables = {
            "LD_PRELOAD": preload_value(shim, folder, environment),
            "MLBACKENDS_TRACE_MARKERS": words.decode(),
            "MLBACKENDS_TRACE_COUNTS": self._counts.path,
        }

    def variables(self, rank_names: Sequence[str]) -> dict[str, str]:
        """Return what the shim reads at its start."""
        return {**self._variables, "MLBACKENDS_TRACE_RANKS": ",".join(rank_names)}

    def counted(self) -> Counted:
        """Return what all processes counted so far."""
        return self._counts.read()

    def close(self) -> None:
        """Let go of the page of counters."""
        self._counts.close()


class Relayed(Separation):
    """The command's output comes through us, by a terminal or a pipe."""

    def __init__(
        self, name: str, trace: TraceFile, markers: Markers, notices: Sequence[Notice]
    ) -> None:
        super().__init__(notices)
        self.name = name
        self._trace = trace
        self._lines = self._lost = self._reason = 0
        self._is_torn = False
        words = [marker for each in markers.values() for marker in each]
        self._relay = Relay(Demultiplexer(words), self._take, by_terminal=name == "terminal")
        self.child_stdout = self._relay.child_end

    def start(self) -> None:
        """Begin to read."""
        self._relay.start()

    def has_started(self) -> None:
        """Leave the output's end to the command, so that it ends with it."""
        self._relay.close_child_end()

    def resize(self, process: int) -> None:
        """Hand on the size of our terminal."""
        self._relay.resize(process)

    def finish(self) -> list[Notice]:
        """Read to the end."""
        if self._relay.finish():
            return []
        return [warning("a program was left in the background; its further output is cut off")]

    def counted(self) -> Counted:
        """Return what came; who printed it is not known."""
        return Counted(self._lines, self._lost, self._reason, 0, 0)

    def close(self) -> None:
        """Let go of the command's end."""
        self._relay.close_child_end()

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                self._write(line if line.endswith(b"\n") else line + b"\n")
                self._lines += 1
            except OSError as error:
                self._lost += 1
                self._reason = self._reason or error.errno or errno.EIO

    def _write(self, line: bytes) -> None:
        """Append a line, not behind one that was cut off when the disk was full."""
        rest = b"\n" + line if self._is_torn else line
        while rest:
            rest = rest[os.write(self._trace.descriptor, rest) :]
            self._is_torn = bool(rest)


def separation_for(
    asked: str,
    program: str,
    trace: TraceFile,
    markers: Markers,
    environment: Mapping[str, str],
    folder: str,
    shim: str | None,
) -> Separation:
    """Return the way that was asked for, or with "auto" the best that there is.

    Raises BadInput where one that was asked for cannot be taken.
    """
    shim = shim_path() if shim is None else shim
    problem = why_not(program, shim, environment) if asked in ("auto", "preload") else ""
    if asked in ("auto", "preload") and not problem:
        try:
            return Preloaded(shim, folder, markers, environment)
        except OSError as error:
            problem = error.strerror or str(error)
    if asked == "preload":
        raise BadInput(f"nothing can be preloaded: {problem}")
    # MKL writes its own file: its user's output need not go through us.
    if asked == "none" or (asked == "auto" and set(markers) <= {"mkl"}):
        return Separation()
    if asked == "auto":
        asked = "terminal" if os.isatty(1) else "pipe"
        why = [information(f"the output goes through a {asked}: {problem}")]
    else:
        why = []
    if asked == "terminal" and not os.isatty(1):
        raise BadInput("standard output is no terminal")
    try:
        return Relayed(asked, trace, markers, why)
    except OSError as error:
        raise BadInput(f"no {asked} can be made: {error.strerror}") from None
