"""A file in memory where the system has one: lines wait there until they are read."""

import fcntl
import os


class Sink:
    """path: what others open to append to it. In memory no full disk takes away what was printed."""

    def __init__(self) -> None:
        self._temporary = ""
        try:
            self._descriptor = above_standard(os.memfd_create("mlbackends-trace"))
            self.path = f"/proc/self/fd/{self._descriptor}"
            os.close(self.open())
        except (AttributeError, OSError):
            import tempfile

            descriptor, self._temporary = tempfile.mkstemp(prefix="mlbackends-trace-")
            self._descriptor = above_standard(descriptor)
            self.path = self._temporary
        self._place = 0

    def open(self) -> int:
        """Return a descriptor that appends."""
        return above_standard(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))

    def read(self) -> bytes:
        """Return what came since the last time; at most 16 MiB."""
        piece = os.pread(self._descriptor, 1 << 24, self._place)
        self._place += len(piece)
        return piece

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)
        if self._temporary:
            os.unlink(self._temporary)


def above_standard(descriptor: int) -> int:
    """Return a descriptor as one above 2: where a standard stream is closed, files get its number."""
    if descriptor > 2:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)
