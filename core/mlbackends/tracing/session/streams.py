"""Where the lines of this process go: a file in memory, a redirected stream, and MKL's own output file.

Source: oneMKL developer reference, mkl_verbose_output_file; MKL 2021.4 to 2026.2.
"""

import contextlib
import ctypes
import os
import sys
import tempfile
from typing import Any

from mlbackends.host.files import flags
from mlbackends.tracing.verbose.copies import Loaded, loaded_files

VARIABLE = "MKL_VERBOSE_OUTPUT_FILE"

_SWITCHES = ("MKL_Verbose", "mkl_verbose")
_FUNCTIONS = ("MKL_Verbose_Output_File", "mkl_verbose_output_file")
_COMPLAINT = b"MKL_VERBOSE WARNING: incorrect output filename"


class Sink:
    """path: what others open to append to it. In memory no full disk takes away what was printed."""

    def __init__(self) -> None:
        self._temporary = ""
        try:
            self._descriptor = above_standard(os.memfd_create("mlbackends-trace"))
            self.path = f"/proc/self/fd/{self._descriptor}"
            os.close(self.open())
        except (AttributeError, OSError):
            descriptor, self._temporary = tempfile.mkstemp(prefix="mlbackends-trace-")
            self._descriptor = above_standard(descriptor)
            self.path = self._temporary
        self._place = 0

    def open(self) -> int:
        """Return a descriptor that appends."""
        return above_standard(os.open(self.path, flags("O_WRONLY", "O_APPEND")))

    def read(self) -> bytes:
        """Return what came since the last time; at most 16 MiB."""
        os.lseek(self._descriptor, self._place, os.SEEK_SET)
        piece = os.read(self._descriptor, 1 << 24)
        self._place += len(piece)
        return piece

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)
        if self._temporary:
            os.unlink(self._temporary)


def above_standard(descriptor: int) -> int:
    """Return a descriptor as one above 2: where a standard stream is closed, files get its number."""
    low = []
    while descriptor <= 2:
        low.append(descriptor)
        descriptor = os.dup(descriptor)
    for number in low:
        os.close(number)
    return descriptor


class Redirected:
    """Descriptor 1 or 2, from now until `end`.

    descriptor: where to; it is closed. outside: the original stream, None if the process lacks it.
    What was buffered before goes where it would have gone. Raises OSError where that cannot be.
    """

    def __init__(self, stream: int, descriptor: int) -> None:
        self._stream = stream
        self.outside: int | None = None
        try:
            flush(stream)
            with contextlib.suppress(OSError):
                self.outside = above_standard(os.dup(stream))
            os.dup2(descriptor, stream)
        finally:
            os.close(descriptor)

    def end(self) -> None:
        """Give the stream back; what is buffered still goes to where it was redirected."""
        with contextlib.suppress(OSError):
            flush(self._stream)
        if self.outside is None:
            os.close(self._stream)
        else:
            os.dup2(self.outside, self._stream)

    def close(self) -> None:
        """Let go of the stream as it was."""
        if self.outside is not None:
            os.close(self.outside)
            self.outside = None


def flush(stream: int) -> None:
    """Write out what Python and C hold back."""
    for file in (sys.stdout, sys.__stdout__) if stream == 1 else (sys.stderr, sys.__stderr__):
        with contextlib.suppress(ValueError, AttributeError):  # closed, or none
            file.flush()  # type: ignore[union-attr]
    # Of each C library that Python is linked with; oneDNN flushes its lines itself.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).fflush(None)


def write_all(descriptor: int, text: bytes) -> None:
    """Write all of it; raises OSError."""
    while text:
        text = text[os.write(descriptor, text) :]


class OutputFiles:
    """The functions of all copies that are loaded now.

    any_switch: whether there is a copy that can be switched. all_have_one: whether each of these has such a
    function; torch's copy lacks it.
    """

    def __init__(self) -> None:
        self._loaded: list[Loaded] = []
        self._functions: dict[int, Any] = {}
        switches: dict[int, bool] = {}
        for path in loaded_files():
            try:
                loaded = Loaded(path)
            except OSError:
                continue
            switch, function = (
                next((address for name in names if (address := loaded.address(name))), 0)
                for names in (_SWITCHES, _FUNCTIONS)
            )
            if not switch:
                loaded.release()
                continue
            self._loaded.append(loaded)
            # Two files may answer with the same copy, and only one of them with its file function.
            switches[switch] = switches.get(switch, False) or bool(function)
            if function:
                self._functions[function] = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(function)
        self.any_switch = bool(switches)
        self.all_have_one = bool(switches) and all(switches.values())

    def set(self, path: str) -> None:
        """Have every copy append to a file; one that cannot prints to standard output on.

        "" is C's `stdout`: MKL's word for that is a name that it complains about, which is not shown.
        """
        if path:
            for function in self._functions.values():
                if function(os.fsencode(path)):
                    self.all_have_one = False
            return
        if not self._functions:
            return
        sink = Sink()
        try:
            stream = Redirected(2, sink.open())
            try:
                for function in self._functions.values():
                    function(b"")
            finally:
                stream.end()
                lines = sink.read().splitlines(keepends=True)
                rest = b"".join(line for line in lines if not line.startswith(_COMPLAINT))
                with contextlib.suppress(OSError):
                    if stream.outside is not None:
                        write_all(stream.outside, rest)
                stream.close()
        finally:
            sink.close()

    def restore(self) -> None:
        """Have every copy print to where it did, the user's file or standard output; let go of them."""
        self.set(os.environ.get(VARIABLE, ""))
        self.close()

    def close(self) -> None:
        """Let go of the copies."""
        while self._loaded:
            self._loaded.pop().release()
