"""How far the reading of traces is: a bar on standard error, where that is a terminal and it takes a while.

    reading run.log.gz  ███████▌              38%   80 of 210 MB   95.1 MB/s  0:02 left

Shares and rates are of the files as they lie on the disk, packed or not.
"""

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Sequence
from math import ceil

from mlbackends.tracing.sources import Source
from mlbackends_cli.plain import one_line
from mlbackends_cli.terminal import ProgressLine

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LONGEST_NAME = 30
_WIDEST = 40
_NARROWEST = 10
_REMEMBERED = 30
"""So many looks back is the rate measured: three seconds."""
_LONGEST_WAIT = 100 * 3600
"""What would take longer cannot be told yet."""


class ReadingProgress(ProgressLine):
    """A bar for all files together; for what has no size, as a pipe, how much of it came."""

    INTERVAL_SECONDS = 0.1

    def __init__(self, names: Sequence[str]) -> None:
        self._count = len(names)
        self._total = _total(names)
        self._before = self._number = 0
        self._source: Source | None = None
        self._seen: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)
        self._seen.append((time.monotonic(), 0))
        super().__init__()

    def begin(self, source: Source) -> None:
        """Go on to a file; what was read of the one before counts as all of it."""
        if self._source is not None:
            self._before += self._source.size or self._source.position
        self._source = source
        self._number += 1

    def line(self, width: int) -> str:
        """Return the line as it is now, at most so many columns wide."""
        if self._source is None:
            return ""
        position = self._before + self._source.position
        now = time.monotonic()
        then, start = self._seen[0]
        self._seen.append((now, position))
        rate = (position - start) / (now - then) if now > then else 0.0
        head = f"reading {self._name()}"
        speed = f"{rate / 1e6:5,.1f} MB/s"
        if not self._total:
            return _fitted([head, f"{position / 1e6:,.0f} MB", speed], width)
        position = min(position, self._total)  # a file may have grown
        left = (self._total - position) / rate if rate > 0 else _LONGEST_WAIT
        whole = f"{self._total / 1e6:,.0f}"
        amount = f"{position / 1e6:{len(whole)},.0f} of {whole} MB"
        wait = f"{_clock(left) if left < _LONGEST_WAIT else '-:--'} left"
        # Numbers keep their widths, so that the bar keeps its own.
        return _with_bar(head, position / self._total, [amount, speed, wait], width)

    def _name(self) -> str:
        name = self._source.name if self._source else ""
        name = "standard input" if name == "-" else one_line(os.path.basename(name))
        if len(name) > _LONGEST_NAME:
            half = _LONGEST_NAME // 2
            name = f"{name[: half - 1]}…{name[-half:]}"
        return f"{self._number} of {self._count}, {name}" if self._count > 1 else name


def bar(share: float, width: int, *, unicode: bool = True) -> str:
    """Return a bar of so many columns, full up to a share between 0 and 1."""
    if not unicode:
        return ("#" * round(share * width)).ljust(width, "-")
    eighths = int(share * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def _with_bar(head: str, share: float, told: list[str], width: int) -> str:
    """Put the bar between head and numbers; of these the last ones stay longest."""
    percent = f"{share:.0%}".rjust(4)
    while True:
        rest = "  ".join([percent, *told])
        room = width - _columns(head) - 2 - 2 - len(rest)
        if room >= _NARROWEST or not (told or head):
            break
        if told:
            told = told[1:]
        else:
            head = ""
    drawn = bar(share, max(0, min(_WIDEST, room)), unicode=_has_blocks())
    return "  ".join(part for part in (head, drawn, rest) if part)


def _fitted(parts: list[str], width: int) -> str:
    while len(parts) > 1 and _columns("  ".join(parts)) > width:
        parts = parts[:-1]
    return "  ".join(parts)


def _columns(text: str) -> int:
    """Return how many columns a text takes: a wide character takes two."""
    if text.isascii():
        return len(text)
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _has_blocks() -> bool:
    encoding = getattr(sys.stderr, "encoding", "") or "ascii"
    return encoding.lower().replace("-", "").startswith("utf")


def _total(names: Sequence[str]) -> int:
    """Return the bytes of all files; 0 where one has no size, or is not there."""
    total = 0
    for name in names:
        try:
            status = os.fstat(sys.stdin.fileno()) if name == "-" else os.stat(name)
        except (AttributeError, OSError, ValueError):
            return 0
        if not stat.S_ISREG(status.st_mode):
            return 0
        total += status.st_size
    return total
