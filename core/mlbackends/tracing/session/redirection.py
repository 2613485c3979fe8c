"""A standard stream of the process that goes elsewhere for a while: for Python, C, and every thread."""

import contextlib
import ctypes
import os
import sys

from mlbackends.tracing.session.sink import above_standard


class Redirected:
    """Descriptor 1 or 2, from now until `end`.

    descriptor: where to; it is closed. outside: the stream as it was, None where the process has none.
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
    names = ("stdout", "__stdout__") if stream == 1 else ("stderr", "__stderr__")
    for name in names:
        file = getattr(sys, name, None)
        if file is not None:
            with contextlib.suppress(ValueError):  # closed
                file.flush()
    # Of each C library that Python is linked with; oneDNN flushes its lines itself.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).fflush(None)


def write_all(descriptor: int, text: bytes) -> None:
    """Write all of it; raises OSError."""
    while text:
        text = text[os.write(descriptor, text) :]
