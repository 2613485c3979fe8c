"""Reading regular files, writing files and standard output as a whole, and locking files."""

import codecs
import errno
import io
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import IO, Any, BinaryIO

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import check

if os.name != "nt":
    import fcntl

#: An offset of 2^62 and one byte, each as its lower and its upper half.
_FAR = (0, 1 << 30, 1, 0)
#: No file that a probe reads is larger than this, in bytes; more is cut off.
READ_LIMIT = 4 << 20
_LEAST_READ, _PAGE = 1 << 16, 4096
_SAMPLE = 64
_MARKS = {codecs.BOM_UTF8: "", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def flags(*names: str) -> int:
    """Return these flags of `os.open` and those that all our files have, as far as the system has them."""
    # O_BINARY: otherwise Windows turns each line's end into one character.
    return sum(getattr(os, name, 0) for name in (*names, "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


#: Opens a file to read from, and a FIFO without a writer at once too.
READ_FLAGS = flags("O_RDONLY", "O_NONBLOCK")


def read_regular(path: str, limit: int = READ_LIMIT) -> bytes:
    """Return a regular file's first bytes, b"" for another kind of file. Raises OSError and ValueError."""
    handle = os.open(path, READ_FLAGS)
    try:
        # A device may never end, and reading a FIFO takes what others wait for.
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return b""
        # A read of a file with a size returns at least a page before its end; of /proc it may return less.
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


def open_named(path: str, *, waits: bool = True) -> io.BufferedReader:
    """Open a file, a pipe, a terminal or the null device that a user named. Raises OSError and ValueError.

    Another device is refused, since it may never end. waits: for the writer of a FIFO, as cat does.
    """
    check(path)
    # Regular is also /proc/kmsg, whose next byte may never come.
    at_once = not waits or os.path.isfile(path)
    opener = (lambda path, _: os.open(path, READ_FLAGS)) if at_once else None
    file = open(path, "rb", opener=opener)  # noqa: SIM115  handed out
    status = os.fstat(file.fileno())
    is_null = os.path.exists(os.devnull) and os.path.samestat(status, os.stat(os.devnull))
    is_device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
    if is_device and not (is_null or file.isatty()):
        file.close()
        raise ValueError("it is a device, not a file")
    if at_once and not stat.S_ISREG(status.st_mode):
        os.set_blocking(file.fileno(), True)
    return file


def named_bytes(
    path: str,
    limit: int,
    kind: str,
    shown: str = "",
    hint: str = "",
    *,
    waits: bool = False,
    pipes: bool = True,
) -> bytes:
    """Return a text that a user named as UTF-8, of a file of at most `limit` bytes. Raises BadInput.

    path: "-" is standard input. kind: what it should be, and shown: the path, for messages. waits: as in
    `open_named`. pipes: whether a pipe is read; who reads it a second time gets nothing.
    """
    shown = shown or path
    with _named(path, shown, hint, waits=waits, pipes=pipes) as file:
        data = file.read(limit + 1) or b""
    if len(data) > limit:
        raise BadInput(f"{shown} is larger than {limit >> 20} MiB: that is not a {kind}", hint)
    return b"".join(as_utf8([data]))


def named_ends(path: str, size: int, most: int, shown: str) -> tuple[bytes, int, bytes]:
    """Return the start of a text that a user named, the number of lines left out after it, and its end.

    Both have about `size` bytes of UTF-8; the end is empty if the start is all. Raises BadInput as
    `named_bytes` does, and for more than `most` bytes, which may be a stream without an end.
    """
    start, skipped, ends, kept, left = b"", 0, deque[bytes](), 0, most
    with _named(path, shown, "") as file:
        for chunk in as_utf8(iter(lambda: file.read(1 << 20) or b"", b"")):
            if len(start) < size:
                start += chunk
                continue
            ends.append(chunk)
            kept += len(chunk)
            left -= len(chunk)
            while kept - len(ends[0]) >= size:
                skipped += ends[0].count(b"\n")
                kept -= len(ends.popleft())
            if left < 0:
                endless = f"{shown} does not end within {most >> 30} GiB"
                raise BadInput(endless, "give the part with the error")
    return start, skipped, b"".join(ends)


@contextmanager
def _named(
    path: str, shown: str, hint: str, *, waits: bool = False, pipes: bool = True
) -> Iterator[IO[bytes]]:
    """Open what a user named, "-" for standard input. Raises BadInput, also for errors of reading."""
    try:
        if path == "-":
            yield sys.stdin.buffer if sys.stdin else io.BytesIO()
            return
        with open_named(path, waits=waits) as file:
            if not pipes and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is a pipe, and a file is needed")  # noqa: TRY301
            yield file
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"{shown} cannot be read: {why}", hint) from None


def start_and_rest(chunks: Iterable[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """Return at least `size` bytes, if there are, and the rest."""
    stream = iter(chunks)
    start = b""
    for chunk in stream:
        start += chunk
        if len(start) >= size:
            break
    return start, stream


def as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same text as UTF-8; text that is not UTF-16 passes unchanged."""
    start, rest = start_and_rest(chunks, _SAMPLE)
    mark = next(filter(start.startswith, _MARKS), b"")
    encoding = _MARKS.get(mark, "")
    sample = start[:_SAMPLE]
    if not mark and len(sample) >= 8:  # without a mark, every other byte of UTF-16 is 0
        low, high = sample[1::2].count(0), sample[::2].count(0)
        if low > 0.8 * (len(sample) // 2) and high == 0:
            encoding = "utf-16-le"
        elif high > 0.8 * (len(sample) // 2) and low == 0:
            encoding = "utf-16-be"
    whole = chain([start[len(mark) :]], rest)
    if not encoding:
        yield from whole
        return
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    for chunk in whole:
        yield decoder.decode(chunk).encode("utf-8", "surrogatepass")


@contextmanager
def whole_file(path: str, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a file that is replaced when the block ends; the old content stays until then.

    mode: None for the old file's, or that of the umask. A device or a FIFO is written to directly.
    Raises OSError.
    """
    check(path)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as device:  # /dev/stderr, a FIFO
            yield device
        return
    import tempfile  # takes 4 ms, and most commands write no file

    # Through a link: the new file must be on the file system of the old one.
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

    Under PYTHONUNBUFFERED Python's own stream writes what the system accepts at once and drops the rest, as
    it does on a pipe that its other end made non-blocking. Raises OSError; nothing is left to be tried again
    when the interpreter ends.
    """
    sys.stdout.flush()
    try:
        number = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # not a file: a test or a notebook replaced it
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
                poller = select.poll()
                poller.register(self.number, select.POLLOUT)
                poller.poll()
        return size


def with_slashes(path: str) -> str:
    """Return a path of this machine with slashes: C:/Python/python.exe on Windows."""
    return path.replace("\\", "/") if os.name == "nt" else path


def lock(descriptor: int) -> bool:
    """Lock a file for this process alone; return whether no other one has it.

    On Windows the lock is on a byte far behind the end of any file, since nobody else may read or write
    what is locked there.
    """
    if os.name == "nt":
        import ctypes
        import msvcrt

        kernel = ctypes.CDLL("kernel32")
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))  # type: ignore[attr-defined]
        kernel.UnlockFile(handle, *_FAR)  # in case it is ours already
        return bool(kernel.LockFile(handle, *_FAR))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # some file systems have no locks
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def share(descriptor: int) -> None:
    """Let others lock a file in the same way: it shows that somebody has the file.

    On Windows this does nothing: the lock itself shows that.
    """
    if os.name != "nt":
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
