"""Whether zstd data ends where a frame does: the package zstandard does not tell.

Source: RFC 8878, section 3.1: frames, blocks and skippable frames.
"""

from collections.abc import Generator
from typing import NamedTuple

_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_RUN = 1
"""A block of one byte, which is repeated as often as the block's size tells."""


class _Part(NamedTuple):
    """What comes next: so many bytes, looked into or skipped. is_first: they begin a frame."""

    size: int
    is_read: bool = True
    is_first: bool = False


class Frames:
    """Follows data that comes in pieces, without unpacking it."""

    def __init__(self) -> None:
        self._walk = _walk()
        self._part = next(self._walk)
        self._left = self._part.size
        self._held = b""

    @property
    def is_whole(self) -> bool:
        """Whether no frame is open."""
        return self._part.is_first and not self._held

    def add(self, data: bytes) -> None:
        """Go on with the next piece."""
        at = 0
        while at < len(data):
            end = min(at + self._left, len(data))
            if self._part.is_read:
                self._held += data[at:end]
            self._left -= end - at
            at = end
            while not self._left:
                held, self._held = self._held, b""
                self._part = self._walk.send(held)
                self._left = self._part.size


def _walk() -> Generator[_Part, bytes, None]:
    """Ask for one part after the other; what is no frame is for the unpacking to complain of."""
    while True:
        magic = int.from_bytes((yield _Part(4, is_first=True)), "little")
        if magic in _SKIPPABLE:
            yield _Part(int.from_bytes((yield _Part(4)), "little"), is_read=False)
            continue
        descriptor = (yield _Part(1))[0]
        has_window = not descriptor & 0x20
        content_size = (0 if has_window else 1, 2, 4, 8)[descriptor >> 6]
        dictionary = (0, 1, 2, 4)[descriptor & 3]
        yield _Part(has_window + dictionary + content_size, is_read=False)
        is_last = False
        while not is_last:
            header = int.from_bytes((yield _Part(3)), "little")
            is_last = bool(header & 1)
            yield _Part(1 if header >> 1 & 3 == _RUN else header >> 3, is_read=False)
        yield _Part(4 if descriptor & 4 else 0, is_read=False)
