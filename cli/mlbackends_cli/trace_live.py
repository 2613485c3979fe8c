"""A table at the bottom of the terminal while a command prints above it.

The terminal scrolls only the rows above: what the command prints stays whole. Nothing of this is
done where standard error is no terminal. A program that takes the whole screen draws over it: it asks the
terminal itself for the rows, and sets what scrolls.
"""

import os
import sys
import time

from mlbackends.tracing.finder import took
from mlbackends_cli.terminal import Page, is_terminal

_ROWS = 12
_LEAST_ROWS = 8
_SECONDS = 0.5


class LiveTable:
    """Takes lines as they come, and draws them now and then, until `end`."""

    def __init__(self, page: Page) -> None:
        from mlbackends.tracing.aggregate import Aggregate

        self._page = page
        self._aggregate = Aggregate()
        self._start = self._drawn = time.monotonic()
        self._size = (0, 0)
        self._body: list[str] = []
        self._is_stale = True

    def take(self, lines: list[bytes]) -> None:
        """Take in lines without their ends, if there are any, and draw if it is time."""
        if lines:
            self._aggregate.add([b"\n".join(lines) + b"\n"])
            self._is_stale = True
        if time.monotonic() - self._drawn >= _SECONDS:
            self._draw()

    def end(self) -> None:
        """Give the rows back to the terminal."""
        if self._size != (0, 0):
            first = self._size[1] - _height(self._size[1]) + 1
            _write(f"\0337\033[r\0338\0337\033[{first};1H\033[J\0338")
            self._size = (0, 0)

    def _draw(self) -> None:
        size = terminal_size()
        if size is None or size[1] < _LEAST_ROWS:
            return
        height = _height(size[1])
        parts = []
        if size != self._size:
            self._is_stale = True
            # Move what stands there up, then let the terminal scroll only what is above.
            up = "\n" * height + f"\033[{height}A" if self._size == (0, 0) else ""
            parts.append(f"{up}\0337\033[1;{size[1] - height}r\0338")
            self._size = size
        if self._is_stale:  # else only the time has gone on
            self._body = [*self._table(size[0], height), *[""] * height][: height - 1]
            self._is_stale = False
        lines = [self._head(size[0] - 1), *self._body]
        parts.append("\0337")
        for number, line in enumerate(lines):
            parts.append(f"\033[{size[1] - height + 1 + number};1H\033[K{line}")
        parts.append("\0338")
        _write("".join(parts))
        self._drawn = time.monotonic()

    def _head(self, width: int) -> str:
        seconds = time.monotonic() - self._start
        head = f"-- {took(seconds * 1e9)}, {self._aggregate.lines:,} lines "
        return head.ljust(width, "-")

    def _table(self, width: int, height: int) -> list[str]:
        from mlbackends.tracing.viewing import from_aggregate
        from mlbackends_cli.trace_pages import printed

        views = from_aggregate(self._aggregate, {"summary": {"top": height - 4}})
        page = Page(width=width - 1, color=False, unicode=self._page.unicode)
        text = printed(views, "table", page)
        # What does not fit on one row would push the others off.
        return [line[: width - 1] for line in text.splitlines()]


def terminal_size() -> tuple[int, int] | None:
    """Return the columns and rows of the terminal at standard error, None where there is none."""
    if not is_terminal(sys.stderr) or os.environ.get("TERM", "dumb") == "dumb":
        return None
    try:
        return tuple(os.get_terminal_size(sys.stderr.fileno()))  # type: ignore[return-value]
    except OSError:
        return None


def _height(rows: int) -> int:
    return min(_ROWS, rows // 2)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
