"""What the user's terminal can show: colour, width, characters; and a line of progress on it."""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

_ASCII = str.maketrans({
    "·": "-", "…": "~", "×": "x", "→": "->", "—": "-", "–": "-", "✓": "+", "✗": "x", "•": "-", "◐": "~",
    "±": "+-", **dict(zip("▁▂▃▄▅▆▇█", "..::==##", strict=True)), **dict.fromkeys("▏▎▍▌▋▊▉", "="),
})  # fmt: skip


#: ENABLE_VIRTUAL_TERMINAL_PROCESSING
_SEQUENCES = 0x4
#: A wider page, as with COLUMNS=99999999, would be padded with gigabytes of blanks.
_WIDEST = 1000


class Page(Struct, frozen=True):
    """What a format may use. width: columns. details: probes were named, so show everything.

    absent: show only what was not found. terminal: the reader is a person, not a program.
    fail_on: the least severity of what counts as failed, for formats that show nothing else.
    """

    width: int = 80
    color: bool = False
    unicode: bool = True
    details: bool = False
    timing: bool = False
    absent: bool = False
    terminal: bool = False
    fail_on: str = "note"

    def styled(self, text: str, style: str) -> str:
        """Return text in one of rich's styles, such as "bold red"; plain without colour."""
        if not (self.color and style and text):
            return text
        from rich.color import ColorSystem
        from rich.style import Style

        return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)

    def sign(self, fancy: str, plain: str) -> str:
        """Return the first sign if the output can show more than ASCII, else the second."""
        return fancy if self.unicode else plain

    def fitted(self, text: str) -> str:
        """Return text with ASCII signs instead of others, if the output has only ASCII."""
        return text if self.unicode else text.translate(_ASCII).encode("ascii", "replace").decode()


def page(color: str, output: str = "", **flags: Any) -> Page:
    """Describe what standard output can show, or the file `output`.

    flags: what was asked for, by its name in `Page`.
    """
    to_file = output not in ("", "-")
    at_terminal = not to_file and is_terminal(sys.stdout)
    # Forced colour is for a terminal or pager at the end of a pipe, never for a file.
    allows_color = at_terminal and interprets_sequences(sys.stdout)
    has_color = uses_color(color, allows_color, {} if to_file else os.environ)
    return Page(
        width=max(40, columns(os.environ)),
        color=has_color,
        terminal=at_terminal or has_color,
        unicode=to_file or has_unicode(sys.stdout),
        **flags,
    )


def error_page(color: str) -> Page:
    """Describe what standard error can show."""
    size = error_terminal_size()
    is_set = os.environ.get("COLUMNS", "").isdecimal()
    return Page(
        width=max(40, size[0] if size and not is_set else columns(os.environ)),
        color=uses_color(color, interprets_sequences(sys.stderr), os.environ),
        unicode=has_unicode(sys.stderr),
    )


def uses_color(choice: str, is_terminal: bool, environment: Mapping[str, str]) -> bool:
    """Decide on colour, by the first that is set.

    That is the option, NO_COLOR, FORCE_COLOR and CLICOLOR_FORCE, CLICOLOR, TERM, the terminal.
    choice: "auto", "always" or "never". An empty NO_COLOR is as good as none (no-color.org); an empty
    FORCE_COLOR or one of "0" forces nothing.
    """
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if any(environment.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if environment.get("CLICOLOR") == "0" or environment.get("TERM") == "dumb":
        return False
    return is_terminal


def columns(environment: Mapping[str, str]) -> int:
    """Return the width of the page, at most _WIDEST: COLUMNS, else the terminal's, else 80."""
    text = environment.get("COLUMNS", "").lstrip("0")
    if text.isdecimal():
        return min(int(text[: len(str(_WIDEST)) + 1]), _WIDEST)
    return _size(sys.stdout)[0] or 80


def rows() -> int:
    """Return the number of lines of the terminal at standard output, 0 without a terminal."""
    return _size(sys.stdout)[1] if is_terminal(sys.stdout) else 0


def error_terminal_size() -> tuple[int, int] | None:
    """Return the columns and rows of the terminal at standard error, None without a terminal."""
    return _size(sys.stderr) if interprets_sequences(sys.stderr) and not is_dumb() else None


def _size(stream: Any) -> tuple[int, int]:
    """Return the columns and rows of the terminal at a stream; 0 if they are unknown."""
    try:
        width, height = os.get_terminal_size(stream.fileno())
    except (AttributeError, ValueError, OSError):  # closed, captured, or no terminal
        return 0, 0
    return min(width, _WIDEST), height


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal; a closed or missing one is not."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def is_dumb() -> bool:
    """Return whether a terminal can only print lines; Windows consoles do not need TERM."""
    return os.environ.get("TERM", "" if os.name == "nt" else "dumb") == "dumb"


def interprets_sequences(stream: Any) -> bool:
    """Return whether a stream is a terminal that supports escape sequences (ECMA-48), such as colours.

    A console of Windows does so from Windows 10 on, when it is asked to.
    """
    if os.name != "nt" or not is_terminal(stream):
        return is_terminal(stream)
    import ctypes
    import msvcrt

    kernel: Any = ctypes.CDLL("kernel32")
    mode = ctypes.c_uint32()
    try:
        console = ctypes.c_void_p(msvcrt.get_osfhandle(stream.fileno()))  # type: ignore[attr-defined]
    except (ValueError, OSError):  # IDLE's console, which is not a file
        return False
    if not kernel.GetConsoleMode(console, ctypes.byref(mode)):
        return False  # NUL
    return bool(kernel.SetConsoleMode(console, mode.value | _SEQUENCES))


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Return replacements for characters that an encoding lacks: an error handler of `str.encode`."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return lacking.translate(_ASCII).encode("ascii", "replace").decode(), error.end


def has_unicode(stream: object) -> bool:
    """Return whether a stream can encode any character."""
    encoding = getattr(stream, "encoding", "") or "ascii"
    return encoding.lower().replace("-", "").startswith(("utf", "cp65001"))


def can_redraw(environment: Mapping[str, str]) -> bool:
    """Return whether a terminal can redraw a line and somebody watches it, unlike in CI."""
    in_ci = environment.get("CI", "").lower() not in ("", "0", "false")
    return environment.get("TERM") != "dumb" and not in_ci


def survey_progress(done: int, total: int, waited_for: str) -> str:
    """Return the number of libraries that have answered, and the probe that is still running."""
    progress = "library has answered" if total == 1 else "libraries have answered"
    return f"{done} of {total} {progress}, waiting for {waited_for}"


class ProgressLine:
    """A line of progress on standard error, drawn by rich: on a terminal only, after half a second.

    It is gone at the end of its `with`. rich is imported by the thread that shows the line, so a command
    that ends before does not wait for it. sentence: returns the line's text for the number that is
    done, the number in all, and what is waited for.
    """

    DELAY_SECONDS = 0.5
    REFRESHES_PER_SECOND = 2.0

    def __init__(self, sentence: Callable[[int, int, str], str] = survey_progress) -> None:
        self._sentence = sentence
        self._state = (0.0, 0.0, "looking at this machine")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)
        if interprets_sequences(sys.stderr) and can_redraw(os.environ):
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def __call__(self, done: int, total: int, waited_for: str) -> None:
        """Note that `done` of `total` are done, and what is still running."""
        self._state = (done, total, self._sentence(done, total, waited_for))

    def state(self) -> tuple[float, float, str]:
        """Return the amount done, the total or 0 if it is unknown, and the text."""
        return self._state

    def columns(self) -> "list[ProgressColumn]":
        """Return what the line consists of."""
        from rich.progress import BarColumn, TextColumn

        return [BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)]

    def _show(self) -> None:
        if self._is_over.wait(self.DELAY_SECONDS):
            return
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True, emoji=False, highlight=False, no_color=None)
        line = Progress(*self.columns(), console=console, transient=True, auto_refresh=False)
        task = line.add_task("", total=None)
        with line:
            console.show_cursor()  # a signal that ends this process must not leave it hidden
            while not self._is_over.is_set():
                done, total, text = self.state()
                line.update(task, completed=done, total=total or None, description=text, refresh=True)
                self._is_over.wait(1 / self.REFRESHES_PER_SECOND)

    def clear(self) -> None:
        """Remove the line."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
