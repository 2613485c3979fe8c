"""The listeners to the libraries of this process: one place for all sessions, since the process is one.

While there is a listener, lines go to a sink. A thread hands on what the program itself prints as it
comes, so that nothing of it waits for the end of a session; lines are kept for the listeners.

The capture's shim, loaded afterwards, stamps lines with process, thread and end. With glibc, it replaces
C's `stdout`, which libraries print to, by its own stream; without a shim, or with another C library,
lines have no stamps.
"""

import _thread
import contextlib
import ctypes
import os
import re
import threading
from collections.abc import Iterable
from typing import Protocol

from mlbackends.base import registry
from mlbackends.base.errors import MlBackendsError
from mlbackends.tracing.capture.demultiplexer import Demultiplexer, Separated
from mlbackends.tracing.capture.preload import shim_path
from mlbackends.tracing.reader import record_length
from mlbackends.tracing.session.streams import VARIABLE, OutputFiles, Redirected, Sink, write_all
from mlbackends.tracing.verbose.copies import loaded_files

_END = b"\x01"

_library: ctypes.CDLL | None = None
_POLL_SECONDS = 0.05
_SWITCHES = ("MKL_VERBOSE", "ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")


def is_preloaded() -> bool:
    """Return whether a capture's shim takes the lines of this process away."""
    return _library is None and any(path.endswith("trace_shim.so") for path in loaded_files())


def _shim() -> ctypes.CDLL | None:
    """Return the shim, which stays loaded: a thread may be printing through it."""
    global _library  # noqa: PLW0603
    path = shim_path()
    if _library is None and path and not is_preloaded():
        with contextlib.suppress(OSError):
            _library = ctypes.CDLL(path)
    # With another C library than glibc it has no such function.
    return _library if path and hasattr(_library, "mlbackends_listen") else None


class NotCaptured(MlBackendsError, RuntimeError):
    """The lines of this process go where a session cannot read them, which would look like no calls."""


class Stamps:
    """Stamps on lines that go to a sink, until `end`; on none before the first `heed`.

    are_available: whether lines get stamps. Lines not printed through C's `stdout` get none.
    """

    def __init__(self, sink: Sink) -> None:
        # A word that no program prints; C's strings hold no zero.
        self._sign = _END + os.urandom(12).hex().encode() + b" "
        self._form = re.compile(re.escape(self._sign) + rb"(pid \d+ tid \d+ end \d+)" + re.escape(_END))
        self._library = _shim()
        self._descriptor = sink.open() if self._library else -1
        self.are_available = self.heed(())

    def heed(self, markers: Iterable[bytes]) -> bool:
        """Stamp the lines that start with one of these; return False if that is not possible."""
        library = self._library
        return library is not None and not library.mlbackends_listen(
            self._descriptor, b"\n".join(markers), self._sign
        )

    def moved_to_front(self, line: bytes) -> bytes:
        """Return a line with its stamp as a capture puts it, b"" for one that has no stamp."""
        stamp = self._form.search(line)
        return b"[%s] " % stamp[1] + self.without(line) if stamp else b""

    def without(self, text: bytes) -> bytes:
        """Return the program's text: what looked like a line has got a stamp too."""
        return self._form.sub(b"", text) if self._sign in text else text

    def end(self) -> None:
        """Give C's `stdout` back."""
        if self._library:
            self._library.mlbackends_listen_no_more()
            os.close(self._descriptor)
            self._library = None
            self.are_available = False


class Listener(Protocol):
    """Who wants lines. tracers: whose."""

    tracers: frozenset[str]

    def take(self, lines: list[bytes]) -> None:
        """Take in lines, of any tracer that somebody listens to; each has the capture's stamp in front.

        Where its end or thread is not known, the stamp has the process alone, and none where even
        that is not: a process started meanwhile may have printed it.
        """


class _Listening:
    """From the first listener to the last. All methods are called with the lock held."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.problem: OSError | None = None
        self._sink = Sink()
        self._stream: Redirected | None = None
        self._files: OutputFiles | None = None
        self._stamps = Stamps(self._sink)
        self._apart = Demultiplexer(())
        self._is_over = threading.Event()
        # A program that is started meanwhile prints what its variables ask for.
        #: Whether no other process can have printed a line.
        self.is_alone = all(os.environ.get(name, "") in {"", "0", "none"} for name in _SWITCHES)

    def add(self, listener: Listener) -> None:
        """Begin to hand on lines. Raises NotCaptured, and OSError where output cannot be redirected."""
        tracers = listener.tracers.union(*(other.tracers for other in self.listeners))
        if "mkl" in tracers and self._files is None:
            files = OutputFiles()
            file = os.environ.get(VARIABLE, "")
            if file and files.any_switch and not files.all_have_one:
                files.close()
                raise NotCaptured(
                    f"this MKL prints to {file}, and has no function to change that",
                    f"start the process without {VARIABLE}",
                )
            self._files = files
            files.set("" if self._stamps.are_available else self._sink.path)
        is_file_enough = tracers == {"mkl"} and self._files and self._files.all_have_one
        if self._stream is None and not is_file_enough:
            self._stream = Redirected(1, self._sink.open())
            threading.Thread(target=self._hand_on, daemon=True).start()
        if self.listeners:
            self.pull()
        self.listeners.append(listener)
        self._begin_anew()

    def remove(self, listener: Listener) -> None:
        """Hand on what has come, and end if nobody else listens."""
        self.pull()
        self.listeners.remove(listener)
        if self.listeners:
            self._begin_anew()
            if self._files and not any("mkl" in other.tracers for other in self.listeners):
                self._restore_files()
            return
        self.end([listener])

    def end(self, last: list[Listener]) -> None:
        """Give everything back; the last listeners get what was still buffered."""
        self._is_over.set()
        self._restore_files()
        self._stamps.end()
        if self._stream is not None:
            self._stream.end()
        self.listeners = last
        self.pull()
        self._settle(self._apart.release(at_end=True))
        self.listeners = []
        if self._stream is not None:
            self._stream.close()
        self._sink.close()

    def leave_to_parent(self, listener: Listener) -> None:
        """In the child of a fork: give standard output back when its copies of the sessions end."""
        if listener in self.listeners:
            self.listeners.remove(listener)
            if not self.listeners:
                self._stamps.end()
                if self._stream is not None:
                    self._stream.end()
                    self._stream.close()

    def pull(self) -> None:
        """Hand on what has come so far."""
        while piece := self._sink.read():
            self._settle(self._apart.feed(piece))

    def _restore_files(self) -> None:
        if self._files is not None:
            self._files.restore()
            self._files = None

    def _begin_anew(self) -> None:
        """Look for the lines of those who listen now: all others are the program's."""
        self._settle(self._apart.release())
        tracers = frozenset().union(*(listener.tracers for listener in self.listeners))
        leaves = (registry.load("mlbackends.tracing.formats", name) for name in sorted(tracers))
        markers = [marker for leaf in leaves for marker in leaf.MARKERS]
        self._stamps.heed(markers)

        def length(line: bytes) -> int:
            bare = self._stamps.without(line)
            size = record_length(bare)
            return len(line) if size == len(bare) else size

        self._apart = Demultiplexer(markers, length)

    def _settle(self, separated: Separated) -> None:
        # Of a line without a stamp the process alone may be known.
        is_ours = self.is_alone and not self._stamps.are_available
        process = b"[pid %d] " % os.getpid() if is_ours else b""
        lines = [self._stamps.moved_to_front(line) or process + line for line in separated.lines]
        for listener in self.listeners if lines else ():
            listener.take(lines)
        text = self._stamps.without(separated.text)
        outside = self._stream.outside if self._stream else 1
        if text and self.problem is None and outside is not None:
            try:
                write_all(outside, text)
            except OSError as error:
                self.problem = error

    def _hand_on(self) -> None:
        """Let the program's own text out as it comes."""
        while not self._is_over.wait(_POLL_SECONDS):
            with _lock:
                if self is not _listening or self._is_over.is_set():
                    return
                self.pull()
                self._settle(self._apart.idle())


_lock = _thread.RLock()
_listening: _Listening | None = None
#: In the child of a fork: its parent's.
_inherited: _Listening | None = None


def begin(listener: Listener) -> None:
    """Have a listener get the lines that are printed from now on. Raises NotCaptured, OSError."""
    global _listening  # noqa: PLW0603  there is one process
    file = os.environ.get("MLBACKENDS_TRACE_FILE", "")
    if file and is_preloaded():
        raise NotCaptured(
            f"this process is traced already: its lines go to {file}",
            "run it without `backends trace`",
        )
    with _lock:
        is_first = _listening is None
        if _listening is None:
            _listening = _Listening()
        try:
            _listening.add(listener)
        except BaseException:
            if is_first:
                fresh, _listening = _listening, None
                fresh.end([])
            raise


def hand_on() -> None:
    """Give every listener what has come so far."""
    with _lock:
        if _listening is not None:
            _listening.pull()


def end(listener: Listener) -> None:
    """Give a listener the rest. Raises OSError where text could not be written to standard output."""
    global _listening  # noqa: PLW0603
    with _lock:
        listening = _listening
        if listening is None or listener not in listening.listeners:
            if _inherited is not None:
                _inherited.leave_to_parent(listener)
            return
        listening.remove(listener)
        if not listening.listeners:
            _listening = None
        problem, listening.problem = listening.problem, None
    if problem is not None:
        raise problem


def _forget() -> None:
    """Leave listening to the parent, which gets the child's lines too."""
    global _lock, _listening, _inherited  # noqa: PLW0603  in a fork's child the lock's holder is gone
    _lock = _thread.RLock()
    if _listening is not None:
        _inherited, _listening = _listening, None


def _has_forked() -> None:
    if _listening is not None:
        _listening.is_alone = False


with contextlib.suppress(AttributeError):
    os.register_at_fork(after_in_child=_forget, after_in_parent=_has_forked)
