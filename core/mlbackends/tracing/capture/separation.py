"""How trace lines are kept apart from the command's own output, and which way is taken."""

import contextlib
import errno
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from mlbackends.base.errors import BadInput
from mlbackends.base.notices import Notice, information, warning
from mlbackends.tracing.capture.demultiplexer import Demultiplexer, Separated
from mlbackends.tracing.capture.preload import preload_value, shim_path, why_not

if os.name == "nt":
    from mlbackends.tracing.capture.windows import waiting_bytes
else:
    import fcntl
    import termios

#: Starts the command, with a descriptor for its output, and returns its process id.
Launch = Callable[[int | None], int]
Markers = Mapping[str, Sequence[bytes]]
_PIECE_BYTES = 1 << 16
_PAGE_BYTES = 4096
_BRIEF_SECONDS = 0.05
_AFTER_THE_END_SECONDS = 2.0


class Counted(NamedTuple):
    """What was counted on the way, in the order of counts.c.

    lost_reason: an errno. unreachable: lines of processes that could not open the trace.
    with_mkl, with_openblas, with_blis: processes that had these loaded when they ended.
    """

    lines: int = 0
    lost: int = 0
    lost_reason: int = 0
    processes: int = 0
    unreachable: int = 0
    with_mkl: int = 0
    with_openblas: int = 0
    with_blis: int = 0


class Separation:
    """No separation: the library itself writes the file, or prints into the command's output.

    variables: what the command's environment needs in addition.
    """

    name = "none"

    def __init__(self, notices: Sequence[Notice] = ()) -> None:
        self.notices = list(notices)
        self.variables: dict[str, str] = {}

    def start(self, launch: Launch) -> int:
        """Start the command, while signals are blocked; return its process id. Raises NotStarted."""
        return launch(None)

    def resize(self, process: int) -> None:
        """Take over a new size of our terminal."""

    def finish(self) -> list[Notice]:
        """Collect what is still in transit after the command has ended; return what went wrong."""
        return []

    def counted(self) -> Counted:
        """Return what was counted on the way; zeros where nothing is."""
        return Counted()

    def close(self) -> None:
        """Let go of everything."""


class _Preloaded(Separation):
    """A shim in each process of the command takes the lines out before they are printed.

    It counts in a page that all its processes share, so that the numbers outlive a process that is
    killed. The page is a file in memory: nothing is left of it where we are killed.
    Raises OSError where there can be none.
    """

    name = "preload"

    def __init__(
        self, shim: str, markers: Markers, environment: Mapping[str, str], ranks: Sequence[str]
    ) -> None:
        super().__init__()
        self._stack = ExitStack()
        os.stat("/proc/self/fd")  # where other processes find the page
        self._counts = os.memfd_create("backends-trace-counts", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._stack.callback(os.close, self._counts)
        os.posix_fallocate(self._counts, 0, _PAGE_BYTES)
        # A program that made it shorter would end all that have it mapped.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._counts, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        words = b"\n".join(marker for those in markers.values() for marker in those)
        self.variables = {
            "LD_PRELOAD": preload_value(shim, environment, self._stack),
            "MLBACKENDS_TRACE_MARKERS": words.decode(),
            "MLBACKENDS_TRACE_COUNTS": f"/proc/{os.getpid()}/fd/{self._counts}",
            "MLBACKENDS_TRACE_RANKS": ",".join(ranks),
        }

    def counted(self) -> Counted:
        return Counted(*struct.unpack("=8Q", os.pread(self._counts, 64, 0).ljust(64, b"\0")))

    def close(self) -> None:
        self._stack.close()


class _Relayed(Separation):
    """The command's output comes through us: a thread prints its text to ours, and keeps the trace.

    The command prints to its own terminal if our output is one, else to a pipe.
    """

    def __init__(self, name: str, trace: int, markers: Markers, notices: Sequence[Notice]) -> None:
        super().__init__(notices)
        self.name = name
        self._trace = trace
        self._lost = self._reason = 0
        self._is_torn = False
        self._demultiplexer = Demultiplexer([word for marker in markers.values() for word in marker])
        self._size: os.terminal_size | None = None
        self._has_ended = threading.Event()
        self._source_lock = threading.Lock()
        self._quiet_since: float | None = None
        self._source, child_end = _terminal() if name == "terminal" else os.pipe()
        self._child_end: int | None = child_end
        self._thread = threading.Thread(target=self._run, name="trace relay", daemon=True)

    def start(self, launch: Launch) -> int:
        self._thread.start()
        process = launch(self._child_end)
        self.close()
        return process

    def close(self) -> None:
        """Let go of the command's end: when the last program has, the output is at its end."""
        if self._child_end is not None:
            os.close(self._child_end)
            self._child_end = None

    def resize(self, process: int) -> None:
        try:
            size = os.get_terminal_size(1) if self.name == "terminal" else self._size
        except OSError:  # it is gone
            return
        if size and size != self._size:
            self._size, before = size, self._size
            with self._source_lock:
                if self._source >= 0:
                    termios.tcsetwinsize(self._source, (size.lines, size.columns))
            if before:
                os.kill(process, signal.SIGWINCH)

    def finish(self) -> list[Notice]:
        """Read to the end.

        A program that was left behind in the background and keeps the output open is waited for
        only while it prints.
        """
        while self._thread.is_alive():
            self._thread.join(_BRIEF_SECONDS)
            quiet_since = self._quiet_since  # never while text waits for a slow reader of ours
            if quiet_since and time.monotonic() - quiet_since > _AFTER_THE_END_SECONDS:
                self._has_ended.set()
                self._thread.join(_AFTER_THE_END_SECONDS)
                return [warning("a program was left in the background; its further output is cut off")]
        return []

    def counted(self) -> Counted:
        return Counted(lost=self._lost, lost_reason=self._reason)

    def _run(self) -> None:
        apart = self._demultiplexer
        try:
            while not self._has_ended.is_set() and (piece := self._read()) is not None:
                if piece:
                    self._quiet_since = None
                    self._write(apart.feed(piece))
                else:
                    self._quiet_since = self._quiet_since or time.monotonic()
                    self._write(apart.idle())
            self._write(apart.release(at_end=True))
        except OSError:  # nobody reads our output: the command is to see the same
            pass
        finally:
            with self._source_lock:
                os.close(self._source)
                self._source = -1

    def _read(self) -> bytes | None:
        """Return what came, b"" if nothing did for a moment, None at the end."""
        try:
            if os.name != "nt":
                has_more = bool(select.select([self._source], [], [], _BRIEF_SECONDS / 2)[0])
            elif not (has_more := waiting_bytes(self._source) > 0):
                time.sleep(_BRIEF_SECONDS / 2)
            if not has_more:
                return b""
            return os.read(self._source, _PIECE_BYTES) or None
        except OSError as error:
            # A terminal's way to end, and a pipe's of Windows.
            if error.errno in (errno.EIO, errno.EPIPE):
                return None
            raise

    def _write(self, separated: Separated) -> None:
        for line in separated.lines:
            # Not behind one that was cut off when the disk was full.
            rest = (b"\n" if self._is_torn else b"") + line.removesuffix(b"\n").removesuffix(b"\r") + b"\n"
            try:
                while rest:
                    rest = rest[os.write(self._trace, rest) :]
                    self._is_torn = bool(rest)
            except OSError as error:
                self._lost += 1
                self._reason = self._reason or error.errno or errno.EIO
        text = memoryview(separated.text)
        while text:
            try:
                text = text[os.write(1, text) :]
            except BlockingIOError:
                select.select([], [1], [])


def _terminal() -> tuple[int, int]:
    """Return both ends of a terminal like ours that changes no byte."""
    ours, childs = os.openpty()
    settings = termios.tcgetattr(1)
    settings[1] &= ~termios.OPOST  # ours does that when the text gets there
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(childs, termios.TCSANOW, settings)
    termios.tcsetwinsize(ours, termios.tcgetwinsize(1))
    return ours, childs


def separation_for(
    way: str,
    program: str,
    trace: int,
    markers: Markers,
    environment: Mapping[str, str],
    shim: str | None,
    ranks: Sequence[str],
) -> Separation:
    """Return the separation of this name, or with "auto" the best that there is.

    trace: the descriptor of its file. ranks: variables that hold a rank.
    Raises BadInput where the one that was named cannot be taken.
    """
    shared = "ranks share one trace: only the preloaded shim can separate them"
    notices = [warning(shared)] if ranks else []
    if way in ("auto", "preload"):
        shim = shim_path() if shim is None else shim
        problem = why_not(program, shim, environment)
        if not problem:
            try:
                return _Preloaded(shim, markers, environment, ranks)
            except OSError as error:
                problem = error.strerror or str(error)
        if way == "preload":
            raise BadInput(f"nothing can be preloaded: {problem}")
        if set(markers) <= {"mkl"} and os.name != "nt":  # it writes the file itself
            return Separation(notices)
        way = "terminal" if os.isatty(1) and os.name != "nt" else "pipe"
        notices.append(information(f"the output goes through a {way}: {problem}"))
    if way == "none":
        return Separation(notices)
    if way == "terminal" and os.name == "nt":
        raise BadInput("Windows has no pseudo-terminal for the program", "--separation pipe does it")
    if way == "terminal" and not os.isatty(1):
        raise BadInput("standard output is not a terminal")
    try:
        return _Relayed(way, trace, markers, notices)
    except OSError as error:
        raise BadInput(f"no {way} can be made: {error.strerror}") from None
