"""The file that a trace goes to: made before the command starts, added to by many processes."""

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping, Sequence
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
        check(path)
        try:
            if os.path.exists(path) and not os.path.isfile(path):
                raise ValueError("it is not a regular file")  # noqa: TRY301
            if os.path.islink(self.path):
                if os.name != "nt" and os.lstat(self.path).st_uid not in (0, os.geteuid()):
                    raise OSError(errno.ELOOP, "it is a link of another user")  # noqa: TRY301
                self.path = with_slashes(os.path.realpath(self.path))
            # A link of now was put there since.
            how = flags("O_RDWR", "O_CREAT", "O_APPEND", "O_NOFOLLOW")
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
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise BadInput(f"the trace cannot be written to {path}: {why}") from None
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
