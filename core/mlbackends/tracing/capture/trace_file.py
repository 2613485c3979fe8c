"""The file that a trace goes to: made before the command starts, added to by many processes.

A trace may go to something other than a regular file, such as /dev/stderr or a FIFO: whole, at the end.
"""

import contextlib
import errno
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import check
from mlbackends.host.files import flags, lock, share, with_slashes
from mlbackends.tracing.capture.environment import ranks_files

_PIECE_BYTES = 1 << 20


class TraceFile:
    """A scope in which a trace is written. Every write appends whole lines.

    path: absolute. Raises BadInput where it cannot be written.
    What was there before is replaced, unless `append`, or another capture is writing there now
    (the ranks of one launch are each a capture): then this one's lines come behind, `is_shared`.
    """

    def __init__(self, path: str, *, append: bool, of_ranks: bool) -> None:
        self.path = with_slashes(os.path.abspath(path))
        self.is_shared = False
        self._of_ranks = of_ranks
        self._existed = append and os.path.exists(self.path)
        self.descriptor = -1
        try:
            if os.path.islink(self.path) and not self.path.startswith("/proc/"):
                if os.name != "nt" and os.lstat(self.path).st_uid not in (0, os.geteuid()):
                    raise OSError(errno.ELOOP, "it is a link of another user")  # noqa: TRY301
                self.path = with_slashes(os.path.realpath(self.path))
            # A link of now was put there since; those of /proc lead to a file in memory.
            follow = () if self.path.startswith("/proc/") else ("O_NOFOLLOW",)
            how = flags("O_RDWR", "O_CREAT", "O_APPEND", *follow)
            self.descriptor = os.open(self.path, how, 0o666)
            self.is_shared = not lock(self.descriptor)
            if not append and not self.is_shared:
                os.ftruncate(self.descriptor, 0)
                for old in self._ranks_files():
                    os.unlink(old)
            size = os.fstat(self.descriptor).st_size
            os.lseek(self.descriptor, max(0, size - 1), os.SEEK_SET)
            if size and os.read(self.descriptor, 1) != b"\n":
                size += os.write(self.descriptor, b"\n")
            self._starts = {self.path: size}
            self._starts |= {other: os.stat(other).st_size for other in self._ranks_files()}
        except (OSError, ValueError) as error:
            if self.descriptor >= 0:
                os.close(self.descriptor)
            raise unwritable(path, error) from None
        if not self.is_shared:
            share(self.descriptor)

    def _ranks_files(self) -> list[str]:
        return ranks_files(self.path) if self._of_ranks else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # it may have been removed
            os.close(self.descriptor)

    def parts(self) -> list[tuple[str, int]]:
        """Return the files as they are now, each with the byte where this run's lines start.

        Where ranks have their own, the common one is left out if it is empty. Files that the command has
        removed are left out too.
        """
        files = self._ranks_files()
        if not files or os.fstat(self.descriptor).st_size:
            files.insert(0, self.path)
        return [(file, self._starts.get(file, 0)) for file in files if os.path.isfile(file)]

    def is_disk_full(self) -> bool:
        """Return whether nothing more can be written."""
        if os.name == "nt":
            return not shutil.disk_usage(os.path.dirname(self.path)).free
        return not os.fstatvfs(self.descriptor).f_bavail

    def remove_if_empty(self) -> bool:
        """Remove the file where no line came, or every line went to a rank's own; return whether it is gone.

        What was there, or may be another's, stays.
        """
        if self.is_shared or self._existed or os.fstat(self.descriptor).st_size:
            return False
        if lock(self.descriptor):  # no other capture has it open
            if os.name == "nt":  # where no open file can be removed
                os.close(self.descriptor)
            with contextlib.suppress(OSError):  # the command has removed it
                os.unlink(self.path)
        return not os.path.exists(self.path)


def unwritable(path: str, error: Exception) -> BadInput:
    """Return what to raise where a trace cannot be written to a path."""
    why = error.strerror if isinstance(error, OSError) else str(error)
    return BadInput(f"the trace cannot be written to {path}: {why}")


def counted(parts: Sequence[tuple[str, int]], markers: Mapping[str, Sequence[bytes]]) -> dict[str, int]:
    """Return how many whole lines each tracer has in the files, "" being all lines.

    A line counts for the tracer whose marker is at its start or behind a stamp; one without an end,
    because the disk is full, does not count. Raises OSError where a file cannot be read.
    """
    totals = dict.fromkeys(["", *markers], 0)
    needles = {
        name: [start + marker for marker in starts for start in (b"\n", b"] ")]
        for name, starts in markers.items()
    }
    for path, start in parts:
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            rest = b"\n"  # the end of the line before, and what came of the one that goes on
            while piece := file.read(_PIECE_BYTES):
                text = rest + piece
                end = text.rfind(b"\n")
                totals[""] += text.count(b"\n", 0, end)
                for name, starts in needles.items():
                    totals[name] += sum(text.count(start, 0, end) for start in starts)
                rest = text[end:]
    return totals


@contextlib.contextmanager
def file_in_memory(name: str) -> Iterator[tuple[int, str]]:
    """Make a file that no folder holds, and that ends with us; give its descriptor and its path.

    Other processes of ours reach it through /proc. Where there is none (macOS), it is a temporary file.
    Raises OSError.
    """
    if not os.path.isdir("/proc/self/fd"):
        descriptor, path = tempfile.mkstemp(prefix="backends-trace-")
        try:
            yield descriptor, path
        finally:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)
        return
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        yield descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


def special_file(path: str) -> io.FileIO | None:
    """Open a device or FIFO, such as /dev/stderr; None for a regular file, a folder or a missing path.

    It is open before the command runs, so that a FIFO keeps its reader. Raises BadInput where it cannot
    be written; a FIFO that nobody reads is not waited for.
    """
    check(path)
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    try:
        descriptor = os.open(path, flags("O_WRONLY", "O_NONBLOCK"))
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(mode):
            raise BadInput(f"no process is reading the FIFO {path}", "start its reader first") from None
        raise unwritable(path, error) from None
    if os.name != "nt":
        os.set_blocking(descriptor, True)
    return io.FileIO(descriptor, "w")


def copied(source: str, target: io.FileIO) -> tuple[int, OSError | None]:
    """Write a file to its target, and cut it off where that ends early.

    Returns how many whole lines were lost, and why; a reader that stops reading is not an error.
    """
    written = 0
    with open(source, "rb+", buffering=0) as file:
        try:
            while piece := file.read(_PIECE_BYTES):
                while piece:
                    count = target.write(piece)
                    written += count
                    piece = piece[count:]
        except OSError as error:
            file.seek(written)
            lost = sum(rest.count(b"\n") for rest in iter(partial(file.read, _PIECE_BYTES), b""))
            file.truncate(written)
            return lost, None if isinstance(error, BrokenPipeError) else error
    return 0, None


class Follower:
    """Reads the lines of files that grow, as they arrive.

    parts: returns which files they are now, each with the byte to start at.
    """

    def __init__(self, parts: Callable[[], Iterable[tuple[str, int]]]) -> None:
        self._parts = parts
        self._places: dict[str, int] = {}

    def new_lines(self) -> list[bytes]:
        """Return the whole lines that were added, without their ends; at most a MiB a file."""
        lines: list[bytes] = []
        for path, start in self._parts():
            place = self._places.get(path, start)
            try:
                with open(path, "rb", buffering=0) as file:
                    file.seek(place)
                    piece = file.read(_PIECE_BYTES)
            except OSError:  # removed by somebody
                continue
            *whole, rest = piece.split(b"\n")
            if len(rest) == _PIECE_BYTES:  # a line that is longer is given in pieces
                whole, rest = [rest], b""
            self._places[path] = place + len(piece) - len(rest)
            lines += whole
        return lines
