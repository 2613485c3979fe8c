"""Lines of this process that say who printed them and when: the capture's shim, loaded afterwards.

With glibc, it puts a stream of its own in the place of C's `stdout`, which libraries print to; where
there is no shim, or another C library, lines have no stamps.
"""

import ctypes
import os
import re
from collections.abc import Iterable

from mlbackends.tracing.capture.preload import shim_path
from mlbackends.tracing.session.sink import Sink
from mlbackends.tracing.verbose.copies import loaded_files

_END = b"\x01"

_library: ctypes.CDLL | None = None


def is_preloaded() -> bool:
    """Tell whether a capture's shim takes the lines of this process away."""
    return _library is None and any(path.endswith("trace_shim.so") for path in loaded_files())


class Stamps:
    """Stamps on lines that go to a sink, until `end`; on none before the first `heed`.

    are_there: whether they can be had. What is printed in other ways than C's `stdout` has none.
    """

    def __init__(self, sink: Sink) -> None:
        # A word that no program prints; C's strings hold no zero.
        self._sign = _END + os.urandom(12).hex().encode() + b" "
        form = re.escape(self._sign) + rb"(pid \d+ tid \d+ end \d+)" + _END
        self._form = re.compile(form)
        self._library = _loaded()
        self._descriptor = sink.open() if self._library else -1
        self.are_there = self._is_heeding(b"")

    def heed(self, markers: Iterable[bytes]) -> None:
        """Stamp the lines that start with one of these."""
        self._is_heeding(b"\n".join(markers))

    def _is_heeding(self, words: bytes) -> bool:
        library = self._library
        return library is not None and not library.mlbackends_listen(
            self._descriptor, words, self._sign
        )

    def moved_to_front(self, line: bytes) -> bytes | None:
        """Return a line with its stamp as a capture puts it, None for one that has no stamp."""
        stamp = self._form.search(line)
        if stamp is None:
            return None
        return b"[%s] " % stamp[1] + line[: stamp.start()] + line[stamp.end() :]

    def without(self, text: bytes) -> bytes:
        """Return the program's text: what looked like a line has got a stamp too."""
        return self._form.sub(b"", text) if self._sign in text else text

    def end(self) -> None:
        """Give C's `stdout` back."""
        if self._library:
            self._library.mlbackends_listen_no_more()
            os.close(self._descriptor)
            self._library = None
            self.are_there = False


def _loaded() -> ctypes.CDLL | None:
    """Return the shim, which stays loaded: a thread may be printing through it."""
    global _library  # noqa: PLW0603
    path = shim_path()
    if _library is None and path and not is_preloaded():
        try:
            library = ctypes.CDLL(path)
            library.mlbackends_listen.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]
        except (OSError, AttributeError):
            return None
        _library = library
    return _library if path else None
