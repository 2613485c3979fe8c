"""What the preloaded shim counts, in a page that all its processes share.

The layout is that of counts.c: 64-bit numbers in the machine's order. The page is a file, so that
the numbers outlive a process that is killed.
"""

import mmap
import os
import struct
from typing import NamedTuple

_PAGE_BYTES = 4096
_LAYOUT = "=5Q"


class Counted(NamedTuple):
    """lost_reason: an errno. unreachable: lines of processes that could not open the trace."""

    lines: int
    lost: int
    lost_reason: int
    processes: int
    unreachable: int


class Counts:
    """A page of counters in a folder; raises OSError where it cannot be made."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "counts")
        with open(self.path, "xb+", buffering=0) as file:
            file.write(bytes(_PAGE_BYTES))  # a hole could not be filled when the disk is full
            self._page = mmap.mmap(file.fileno(), _PAGE_BYTES, access=mmap.ACCESS_READ)

    def read(self) -> Counted:
        """Return the numbers as they are now."""
        return Counted(*struct.unpack_from(_LAYOUT, self._page))

    def close(self) -> None:
        """Let go of the page."""
        self._page.close()
