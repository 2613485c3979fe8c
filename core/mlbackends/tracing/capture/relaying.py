"""The command's standard output on its way through us, where nothing in it can take the trace out.

It prints to a terminal of its own where our output is one, else to a pipe.
"""

import errno
import os
import select
import signal
import threading
import time
from collections.abc import Callable

from mlbackends.tracing.capture.demultiplexer import Demultiplexer, Separated

_PIECE_BYTES = 1 << 16
_BRIEF_SECONDS = 0.05
_PATIENT_SECONDS = 2.0
_BRIEF_BYTES = 4
_AFTER_THE_END_SECONDS = 2.0


class Relay:
    """A thread that reads the command's output, prints its text to ours, and hands over the trace.

    Start it where signals are blocked: the thread takes none. take_lines: gets whole lines.
    child_end: the descriptor that the command prints to; `close_child_end` once it has it.
    """

    def __init__(
        self,
        demultiplexer: Demultiplexer,
        take_lines: Callable[[list[bytes]], None],
        *,
        by_terminal: bool,
        stdout: int = 1,
    ) -> None:
        self._demultiplexer = demultiplexer
        self._take_lines = take_lines
        self._stdout = stdout
        self._by_terminal = by_terminal
        self._size: tuple[int, int] | None = None
        self._has_ended = threading.Event()
        self._source_lock = threading.Lock()
        self._quiet_since: float | None = None
        self._source, self.child_end = _terminal(stdout) if by_terminal else os.pipe()
        self._thread = threading.Thread(target=self._run, name="trace relay", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close_child_end(self) -> None:
        """Let go of the command's end: when the last program has, the output is at its end."""
        if self.child_end >= 0:
            os.close(self.child_end)
            self.child_end = -1

    def resize(self, process: int) -> None:
        """Give the command's terminal the size of ours, and tell the command if it changed."""
        if not self._by_terminal or not (size := _size(self._stdout)) or size == self._size:
            return
        self._size, before = size, self._size
        with self._source_lock:
            if self._source >= 0:
                _resize(self._source, size)
        if before:
            os.kill(process, signal.SIGWINCH)

    def finish(self) -> bool:
        """Read to the end, and return whether it came.

        A program that was left behind in the background and keeps the output open is waited for
        only while it prints.
        """
        self.close_child_end()
        while self._thread.is_alive():
            self._thread.join(_BRIEF_SECONDS)
            quiet_since = self._quiet_since  # never while text waits for a slow reader of ours
            if quiet_since and time.monotonic() - quiet_since > _AFTER_THE_END_SECONDS:
                self._has_ended.set()
                self._thread.join(_AFTER_THE_END_SECONDS)
                return False
        return True

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
        if separated.lines:
            self._take_lines(separated.lines)
        rest = memoryview(separated.text)
        while rest:
            try:
                rest = rest[os.write(self._stdout, rest) :]
            except BlockingIOError:
                select.select([], [self._stdout], [])


def _terminal(stdout: int) -> tuple[int, int]:
    """Return both ends of a terminal like ours that changes no byte."""
    import termios

    ours, childs = os.openpty()
    settings = termios.tcgetattr(stdout)
    settings[1] &= ~termios.OPOST  # ours does that when the text gets there
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(childs, termios.TCSANOW, settings)
    if size := _size(stdout):
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
