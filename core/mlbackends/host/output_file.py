"""Bytes that leave the process: a file that is there whole or not at all, or all of standard output."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """Open a file that comes to be when the block ends; what was there before stays until then.

    A device or a FIFO is written to as it comes. Raises OSError.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as device:  # /dev/stderr, a FIFO
            yield device
        return
    import tempfile

    # Through a link: the new file must come to be on the file system of the old one.
    target = os.path.realpath(path)
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o666 & ~_umask()
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
        descriptor.is_given_up = True
        stream.detach()


class _Descriptor(io.RawIOBase):
    """A file descriptor that takes everything, however long that lasts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_given_up = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.number

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left and not self.is_given_up:
            try:
                left = left[os.write(self.number, left) :]
            except BlockingIOError:
                self._wait()
        return size

    def _wait(self) -> None:
        import select

        poller = select.poll()
        poller.register(self.number, select.POLLOUT)
        poller.poll()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
