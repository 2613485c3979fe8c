"""How trace lines are kept apart from the command's own output, and which way is taken."""

import errno
import os
import select
import signal
import threading
import time
from collections.abc import Mapping, Sequence

from mlbackends.launch.notices import Notice, information, warning
from mlbackends.model.errors import BadInput
from mlbackends.tracing.capture.demultiplexer import Demultiplexer, Separated
from mlbackends.tracing.capture.preload import Counted, Counts, preload_value, shim_path, why_not
from mlbackends.tracing.capture.trace_file import TraceFile

SEPARATIONS = ("auto", "preload", "terminal", "pipe", "none")

Markers = Mapping[str, Sequence[bytes]]
_PIECE_BYTES = 1 << 16
_BRIEF_SECONDS = 0.05
_PATIENT_SECONDS = 2.0
_BRIEF_BYTES = 4
_AFTER_THE_END_SECONDS = 2.0


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
    """The command's output comes through us: a thread prints its text to ours, and keeps the trace.

    The command prints to a terminal of its own where our output is one, else to a pipe. Start it where
    signals are blocked: the thread takes none.
    """

    def __init__(
        self, name: str, trace: TraceFile, markers: Markers, notices: Sequence[Notice]
    ) -> None:
        super().__init__(notices)
        self.name = name
        self._trace = trace
        self._lines = self._lost = self._reason = 0
        self._is_torn = False
        self._demultiplexer = Demultiplexer([word for each in markers.values() for word in each])
        self._size: tuple[int, int] | None = None
        self._has_ended = threading.Event()
        self._source_lock = threading.Lock()
        self._quiet_since: float | None = None
        self._source, child_end = _terminal() if name == "terminal" else os.pipe()
        self.child_stdout = child_end
        self._thread = threading.Thread(target=self._run, name="trace relay", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Let go of the command's end: when the last program has, the output is at its end."""
        if self.child_stdout is not None:
            os.close(self.child_stdout)
            self.child_stdout = None

    has_started = close

    def resize(self, process: int) -> None:
        """Give the command's terminal the size of ours, and tell the command if it changed."""
        if self.name != "terminal" or not (size := _size(1)) or size == self._size:
            return
        self._size, before = size, self._size
        with self._source_lock:
            if self._source >= 0:
                _resize(self._source, size)
        if before:
            os.kill(process, signal.SIGWINCH)

    def finish(self) -> list[Notice]:
        """Read to the end.

        A program that was left behind in the background and keeps the output open is waited for
        only while it prints.
        """
        self.close()
        while self._thread.is_alive():
            self._thread.join(_BRIEF_SECONDS)
            quiet_since = self._quiet_since  # never while text waits for a slow reader of ours
            if quiet_since and time.monotonic() - quiet_since > _AFTER_THE_END_SECONDS:
                self._has_ended.set()
                self._thread.join(_AFTER_THE_END_SECONDS)
                return [
                    warning("a program was left in the background; its further output is cut off")
                ]
        return []

    def counted(self) -> Counted:
        """Return what came; the processes that printed it are not known."""
        return Counted(self._lines, self._lost, self._reason, 0, 0)

    def _run(self) -> None:
        try:
            while not self._has_ended.is_set() and (piece := self._read()) is not None:
                if piece:
                    self._quiet_since = None
                    self._give(self._demultiplexer.feed(piece))
                else:
                    self._quiet_since = self._quiet_since or time.monotonic()
                    if self._is_overdue(time.monotonic() - self._quiet_since):
                        self._give(self._demultiplexer.release())
            self._give(self._demultiplexer.release(at_end=True))
        except OSError:  # nobody reads our output: the command is to see the same
            pass
        finally:
            with self._source_lock:
                os.close(self._source)
                self._source = -1

    def _read(self) -> bytes | None:
        """Return what came, b"" if nothing did for a moment, None at the end."""
        if not select.select([self._source], [], [], _BRIEF_SECONDS / 2)[0]:
            return b""
        try:
            return os.read(self._source, _PIECE_BYTES) or None
        except OSError as error:  # a terminal's way to end
            if error.errno == errno.EIO:
                return None
            raise

    def _is_overdue(self, quiet_seconds: float) -> bool:
        """Tell whether what is held should be seen now: a prompt "MKL_VERBOSE? " may wait for an answer.

        A library prints a line at once: little more than a moment can lie between its parts.
        """
        held = self._demultiplexer.held
        if not held or self._demultiplexer.is_surely_trace:
            return False
        patience = _BRIEF_SECONDS if len(held) < _BRIEF_BYTES else _PATIENT_SECONDS
        return quiet_seconds > patience

    def _give(self, separated: Separated) -> None:
        for line in separated.lines:
            try:
                self._write(line if line.endswith(b"\n") else line + b"\n")
                self._lines += 1
            except OSError as error:
                self._lost += 1
                self._reason = self._reason or error.errno or errno.EIO
        rest = memoryview(separated.text)
        while rest:
            try:
                rest = rest[os.write(1, rest) :]
            except BlockingIOError:
                select.select([], [1], [])

    def _write(self, line: bytes) -> None:
        """Append a line, not behind one that was cut off when the disk was full."""
        rest = b"\n" + line if self._is_torn else line
        while rest:
            rest = rest[os.write(self._trace.descriptor, rest) :]
            self._is_torn = bool(rest)


def _terminal() -> tuple[int, int]:
    """Return both ends of a terminal like ours that changes no byte."""
    import termios

    ours, childs = os.openpty()
    settings = termios.tcgetattr(1)
    settings[1] &= ~termios.OPOST  # ours does that when the text gets there
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(childs, termios.TCSANOW, settings)
    if size := _size(1):
        _resize(ours, size)
    return ours, childs


def _size(terminal: int) -> tuple[int, int] | None:
    try:
        size = os.get_terminal_size(terminal)
    except OSError:
        return None
    return size.lines, size.columns


def _resize(terminal: int, size: tuple[int, int]) -> None:
    import termios

    if hasattr(termios, "tcsetwinsize"):
        termios.tcsetwinsize(terminal, size)


def separation_for(
    way: str,
    program: str,
    trace: TraceFile,
    markers: Markers,
    environment: Mapping[str, str],
    folder: str,
    shim: str | None,
) -> Separation:
    """Return the way that was way for, or with "auto" the best that there is.

    Raises BadInput where one that was way for cannot be taken.
    """
    shim = shim_path() if shim is None else shim
    problem = why_not(program, shim, environment) if way in ("auto", "preload") else ""
    if way in ("auto", "preload") and not problem:
        try:
            return Preloaded(shim, folder, markers, environment)
        except OSError as error:
            problem = error.strerror or str(error)
    if way == "preload":
        raise BadInput(f"nothing can be preloaded: {problem}")
    # MKL writes its own file: its user's output need not go through us.
    if way == "none" or (way == "auto" and set(markers) <= {"mkl"}):
        return Separation()
    if way == "auto":
        way = "terminal" if os.isatty(1) else "pipe"
        why = [information(f"the output goes through a {way}: {problem}")]
    else:
        why = []
    if way == "terminal" and not os.isatty(1):
        raise BadInput("standard output is no terminal")
    try:
        return Relayed(way, trace, markers, why)
    except OSError as error:
        raise BadInput(f"no {way} can be made: {error.strerror}") from None
