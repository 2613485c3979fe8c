"""Reading regular files, and writing files and standard output as a whole."""

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from mlbackends.base.mounts import check

#: No file that a probe reads is larger than this, in bytes; more is cut off.
READ_LIMIT = 4 << 20
_LEAST_READ, _PAGE = 1 << 16, 4096


def flags(*names: str) -> int:
    """Return these flags of `os.open` and those that all our files have, as far as the system has them."""
    # O_BINARY: otherwise Windows turns each line's end into one character.
    return sum(getattr(os, name, 0) for name in (*names, "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


#: Opens a file to read from, and a FIFO without a writer at once too.
READ_FLAGS = flags("O_RDONLY", "O_NONBLOCK")


def read_regular(path: str, limit: int = READ_LIMIT) -> bytes:
    """Return a regular file's first bytes, b"" for another kind of file; raises OSError and ValueError."""
    handle = os.open(path, READ_FLAGS)
    try:
        # A device may give for ever, and a FIFO takes what others wait for.
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return b""
        # A file with a size gives a page at least before its end; /proc's have none, and may give less.
        least = _PAGE if status.st_size else 1
        pieces, size = [], max(status.st_size, _LEAST_READ)
        while limit > 0 and (piece := os.read(handle, min(limit, size))):
            pieces.append(piece)
            if len(piece) < least:
                break
            limit, size = limit - len(piece), _LEAST_READ
        return b"".join(pieces)
    finally:
        os.close(handle)


@contextmanager
def whole_file(path: str, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a file that is replaced when the block ends; what was there before stays until then.

    mode: None for the old file's, or as the umask has it. A device or a FIFO is written to directly.
    Raises OSError.
    """
    check(path)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as device:  # /dev/stderr, a FIFO
            yield device
        return
    import tempfile

    # Through a link: the new file must come to be on the file system of the old one.
    target = os.path.realpath(path)
    if mode is None and os.path.exists(path):
        mode = os.stat(path).st_mode & 0o777
    elif mode is None:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    handle, part = tempfile.mkstemp(prefix=".backends-", dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(part, mode)
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Open standard output for bytes, all of which are written when the block ends.

    Under PYTHONUNBUFFERED Python's own stream writes what the system takes at once, and drops the rest; a
    pipe that its other end made non-blocking does the same to it. Raises OSError; nothing is left to be
    tried again at the interpreter's end.
    """
    sys.stdout.flush()
    try:
        number = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # no file: a test or a notebook took it
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    descriptor = _Descriptor(number)
    stream = io.BufferedWriter(descriptor, 1 << 16)
    try:
        yield stream
        stream.flush()
    finally:
        descriptor.is_closed = True
        stream.detach()


class _Descriptor(io.RawIOBase):
    """A file descriptor to which every byte is written, however long the reader takes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_closed = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.number

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left and not self.is_closed:
            try:
                left = left[os.write(self.number, left) :]
            except BlockingIOError:
                import select

                poller = select.poll()
                poller.register(self.number, select.POLLOUT)
                poller.poll()
        return size


def with_slashes(path: str) -> str:
    """Return a path of this machine in the one style of ours: C:/Python/python.exe under Windows."""
    return path.replace("\\", "/") if os.name == "nt" else path
