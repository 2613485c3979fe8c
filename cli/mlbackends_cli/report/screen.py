"""A full-screen view that rich draws, and the keys that are typed on it."""

import os
import select
import sys
import time
from contextlib import suppress
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mlbackends.base.errors import BadInput
from mlbackends_cli.terminal import interprets_sequences, is_dumb, is_terminal

termios: Any = None
msvcrt: Any = None
if os.name == "nt":
    import msvcrt
else:
    import termios

_SEQUENCES = {
    "\033[A": "up", "\033OA": "up", "\033[B": "down", "\033OB": "down", "\033": "escape",
    "\xe0H": "up", "\xe0P": "down", "\x00H": "up", "\x00P": "down", "\r": "\n", "\x7f": "\b", "\b": "\b",
}  # fmt: skip
#: Seconds after which a change of the terminal's size is noticed.
_GLANCE = 0.1


class Screen:
    """The alternate screen of a terminal, drawn by rich, on which each key is read at once.

    instead: what to type if there is no terminal; `BadInput` has it as a hint.
    """

    def __init__(self, instead: str) -> None:
        if is_dumb() or not interprets_sequences(sys.stdout):
            raise BadInput("standard output is not a terminal that can be drawn on", instead)
        # Colour was decided with the page: styles arrive in the text.
        console = Console(color_system="standard", no_color=False, legacy_windows=False)
        self._live = Live(console=console, screen=True, auto_refresh=False)
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
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        for descriptor in self._keys if termios else ():
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, self._modes)
        with suppress(OSError):
            self._live.stop()

    def size(self) -> tuple[int, int]:
        """Return the number of columns and rows."""
        return self._live.console.size

    def draw(self, lines: list[str]) -> None:
        """Show lines from the top; those for which there is no space are left out."""
        text = Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")
        self._live.update(text, refresh=True)

    def key(self, seconds: float) -> str:
        """Return the next key within a time; "" if there is none, or if the size has changed."""
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
