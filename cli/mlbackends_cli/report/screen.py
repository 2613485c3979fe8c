"""A terminal that a command draws over, as it was before when the command ends; and the keys typed there."""

import os
import select
import sys
import time
from contextlib import suppress
from typing import Any, Self

from mlbackends.base.errors import BadInput
from mlbackends_cli.terminal import interprets_sequences, is_dumb, is_terminal

termios: Any = None
msvcrt: Any = None
if os.name == "nt":
    import msvcrt
else:
    import termios

#: The other screen, without a cursor; what is wider than it is cut there, and moves no line.
_ENTER, _LEAVE = "\033[?1049h\033[?25l\033[?7l", "\033[?7h\033[?25h\033[?1049l"
_SEQUENCES = {
    "\033[A": "up", "\033OA": "up", "\033[B": "down", "\033OB": "down", "\033": "escape",
    "\xe0H": "up", "\xe0P": "down", "\x00H": "up", "\x00P": "down", "\r": "\n", "\x7f": "\b", "\b": "\b",
}  # fmt: skip
#: Seconds after which a change of the terminal's size is seen.
_GLANCE = 0.1


class Screen:
    """The other screen of a terminal, without a cursor, where each key comes at once.

    instead: what to type where there is no terminal; `BadInput` says so.
    """

    def __init__(self, instead: str) -> None:
        if is_dumb() or not interprets_sequences(sys.stdout):
            raise BadInput("standard output is no terminal that can be drawn over", instead)
        self._keys = [sys.stdin.fileno()] if is_terminal(sys.stdin) else []
        self._typed = ""
        self._modes: Any = None

    def __enter__(self) -> Self:
        for descriptor in self._keys if termios else ():
            self._modes = termios.tcgetattr(descriptor)
            modes = termios.tcgetattr(descriptor)
            modes[3] &= ~(termios.ICANON | termios.ECHO)
            modes[6][termios.VSUSP] = b"\0"  # Ctrl-Z would leave its shell on this screen
            termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)
        self._write(_ENTER)
        return self

    def __exit__(self, *error: object) -> None:
        for descriptor in self._keys if termios else ():
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, self._modes)
        with suppress(OSError):
            self._write(_LEAVE)

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding, "replace"))
        sys.stdout.buffer.flush()

    @staticmethod
    def size() -> tuple[int, int]:
        """Return its columns and rows; 80 and 24 where it does not tell."""
        width, height = os.get_terminal_size(sys.stdout.fileno())
        return width or 80, height or 24

    def draw(self, lines: list[str]) -> None:
        """Show lines from the top; those that have no room are left out."""
        shown = lines[: self.size()[1]]
        self._write("\033[H" + "\033[K\n".join(shown) + "\033[K\033[J")

    def key(self, seconds: float) -> str:
        """Return the next key within so many seconds; "" without one, or when the size has changed."""
        size, end = self.size(), time.monotonic() + seconds
        while not self._typed and self.size() == size and (left := end - time.monotonic()) > 0:
            if not self._keys:
                time.sleep(min(left, _GLANCE))
            elif msvcrt:
                self._typed = _typed_in_console(min(left, _GLANCE))
            elif select.select(self._keys, [], [], min(left, _GLANCE))[0]:
                self._typed = os.read(self._keys[0], 256).decode(errors="replace")
                if not self._typed:  # the terminal is gone
                    return "q"
        for sequence, name in _SEQUENCES.items():
            if self._typed.startswith(sequence):
                # What follows an escape that is none of these belongs to it.
                self._typed = "" if name == "escape" else self._typed[len(sequence) :]
                return name
        sign, self._typed = self._typed[:1], self._typed[1:]
        return sign


def _typed_in_console(seconds: float) -> str:
    """Return what was typed in a console of Windows, after waiting for it; "" for nothing."""
    if not msvcrt.kbhit():
        time.sleep(seconds)
    keys = []
    while msvcrt.kbhit():
        keys.append(msvcrt.getwch())
    if "\x03" in keys:
        raise KeyboardInterrupt
    return "".join(keys)
