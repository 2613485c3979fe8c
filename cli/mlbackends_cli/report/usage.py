"""What uses the machine, as lines of a page, and the full screen on which `backends top` shows them.

The lines are plain strings: they are drawn every second.
"""

import os
import re
import select
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mlbackends.base.errors import BadInput
from mlbackends.model.usage import GpuUsage, MappedLibrary, ProcessUsage, Usage
from mlbackends_cli.terminal import Page, interprets_sequences, is_dumb, is_terminal
from mlbackends_cli.text.layout import cropped, width, wrapped
from mlbackends_cli.text.plain import binary_size, joined, one_line, without_commands

_LABEL = 9
#: On a narrower page, libraries are shown below their process, without the user.
_NARROW = 100
_NARROWEST = 60
_MOST_CORE_LINES = 3
#: A cell without a value, "?" or "?/8"; not a sign in the middle of a name.
_UNKNOWN = re.compile(r"(?<![^\sm])\?(?=[\s/\033]|$)")
_RED, _YELLOW, _GREEN, _DIM, _BOLD = "red", "yellow", "green", "dim", "bold"


def header(usage: Usage, page: Page) -> list[str]:
    """Return the lines about the machine, the limits of the container, and each GPU."""
    machine, group = usage.machine, usage.group
    load = " ".join(f"{average:.2f}" for average in machine.load)
    about = joined(
        f"{usage.process_count} process{'es' * (usage.process_count != 1)}",
        load and f"load {load}",
        usage.created[11:],
    )
    lines = [page.styled("backends top", _BOLD) + cropped(f"  {about}", page.width - 12)]
    cpu = machine.cpu_percent
    lines += _meter("CPU", cpu, f"{_number(cpu)} % of {machine.cpus} CPUs", page)
    signs, room = page.sign("▁▂▃▄▅▆▇█", "..::==##"), page.width - _LABEL
    cores = [
        page.styled(signs[min(7, int(percent / 12.5))], _heat(percent)) for percent in machine.core_percents
    ]
    for at in range(0, min(len(cores), room * _MOST_CORE_LINES), room):
        lines.append(f"{'' if at else 'each':<{_LABEL}}{''.join(cores[at : at + room])}")
    memory = _of(machine.memory_used_bytes, machine.memory_bytes)
    swap = f"swap {_of(machine.swap_used_bytes, machine.swap_bytes)}" if machine.swap_bytes else ""
    share = _share(machine.memory_used_bytes, machine.memory_bytes)
    lines += _meter("memory", share, joined(memory, swap), page)
    if group.cpus is not None:
        used, stopped = group.cpu_percent, group.throttled_percent
        share = None if used is None else used / group.cpus
        text = f"{'' if used is None else f'{used / 100:.2f} of '}{group.cpus:g} CPUs"
        stops = f"stopped in {stopped:.0f} % of periods" if stopped is not None else ""
        lines += _meter("quota", share, joined(text, stops), page)
    if group.memory_limit_bytes:
        text = f"{_of(group.memory_bytes, group.memory_limit_bytes)} of memory"
        lines += _meter("limit", _share(group.memory_bytes, group.memory_limit_bytes), text, page)
    if group.pressure:
        waits = joined(*(f"{name} {share:.0f} %" for name, share in group.pressure.items()))
        lines += _meter("pressure", None, waits, page)
    for gpu in usage.gpus:
        lines += _gpu(gpu, page)
    for note in usage.notes:
        lines += _meter("note", None, note.message, page)
    return [page.fitted(line) for line in lines]


def _gpu(gpu: GpuUsage, page: Page) -> list[str]:
    label, share = f"GPU {gpu.index}", gpu.utilisation_percent
    if gpu.reasons:
        return _meter(label, None, gpu.reasons[0].message, page)
    watts = "" if gpu.power_watts is None else f"{gpu.power_watts:.0f}"
    limit = "" if gpu.power_limit_watts is None else f" of {gpu.power_limit_watts:.0f}"
    text = joined(
        "MIG is on" if gpu.mig and share is None else f"{_number(share)} %",
        _of(gpu.memory_used_bytes, gpu.memory_bytes),
        "" if gpu.temperature_celsius is None else f"{gpu.temperature_celsius} °C",
        f"{watts}{limit} W" if watts else "",
        gpu.name,
    )
    return _meter(label, share, text, page)


def _meter(label: str, share: float | None, text: str, page: Page) -> list[str]:
    """Return a label, a bar if there is a share in percent, and a text on one line or more."""
    start = f"{label:<{_LABEL}}"
    if share is not None:
        room = max(10, min(40, page.width // 4))
        filled = round(min(100.0, share) / 100 * room)
        start += page.styled(page.sign("█", "#") * filled, _heat(share))
        start += page.styled(page.sign("░", "-") * (room - filled), _DIM) + " "
    first, *rest = wrapped(one_line(text), page.width - width(start))
    return [start + first, *(" " * width(start) + line for line in rest)]


def _heat(percent: float) -> str:
    return _RED if percent >= 85 else _YELLOW if percent >= 60 else _GREEN


def table(usage: Usage, page: Page, rows: Sequence[ProcessUsage]) -> list[str]:
    """Return a line of titles, and of each process a line; on a narrow page its libraries below."""
    is_wide = page.width >= _NARROW
    columns = {"pid": 7, "cpu %": 6, "thr/cpu": 8, "memory": 9}
    columns |= {"gpu mem": 9} if usage.gpus and page.width >= _NARROWEST else {}
    used = sum(columns.values()) + len(columns) + 10 * is_wide
    names = max(12, min(36, (page.width - used) // 3)) if is_wide else page.width - used
    titles = "".join(f"{title:>{room}} " for title, room in columns.items())
    titles += f"{'user':<10}{'name':<{names}} libraries" if is_wide else "name"
    lines = [page.styled(titles, _BOLD)]
    for row in rows:
        threads = "?" if row.threads is None else f"{row.threads}"
        threads += "" if row.cpus is None else f"/{row.cpus:g}"
        threads += "!" * row.oversubscribed
        cells = [f"{row.pid}", _number(row.cpu_percent), threads, _size(row.memory_bytes)]
        cells += [_size(row.gpu_memory_bytes) if row.gpus else ""]  # left out without its column
        padded = [f"{cell:>{room}} " for cell, room in zip(cells, columns.values(), strict=False)]
        if row.oversubscribed:
            padded[2] = page.styled(padded[2], _RED)
        text = "".join(padded) + (_fit(row.user, 9) + " " if is_wide else "")
        name = _fit(row.name or "?", names)
        text += page.styled(name, _BOLD) if row.libraries else name
        libraries = "?" if row.libraries is None else ", ".join(map(_library, row.libraries))
        if is_wide:
            text += " " + cropped(libraries, page.width - used - names - 1)
        lines.append(text.rstrip())
        if row.libraries and not is_wide:
            lines.append(page.styled(" " * 8 + cropped(libraries, page.width - 8), _DIM))
    return [page.fitted(line) for line in lines]


def legend(rows: Sequence[ProcessUsage], lines: Sequence[str]) -> list[str]:
    """Return the meaning of the signs of processes, and of the lines of the page."""
    found = []
    if any(row.oversubscribed for row in rows):
        found.append("! more runnable threads than CPUs: lower OMP_NUM_THREADS")
    if any(_UNKNOWN.search(line) for line in lines):
        found.append("? could not be determined")
    return found


def whole(usage: Usage, page: Page, most: int = 30) -> str:
    """Return the page that --once prints, with at most `most` processes."""
    rows = usage.processes[:most]
    lines = [*header(usage, page), "", *table(usage, page, rows)]
    signs, left = legend(rows, lines), len(usage.processes) - most
    lines += [f"and {left} more; --format json has all"] if left > 0 else []
    lines += [line for text in signs for line in wrapped(text, page.width)]
    return without_commands("\n".join(lines))


def _library(one: MappedLibrary) -> str:
    """Return a library with its version, and the package that contains it if that is another name."""
    # OpenMP runtimes are named by their files.
    file_name = one.path.rpartition("/")[2]
    name = file_name.partition(".")[0].partition("-")[0] if one.name == "openmp" else one.name
    owner, _, version = one.owner.partition(" ")
    is_itself = one.version and version.startswith(one.version)
    parts = (name, one.version, f"({owner})" if owner and not is_itself else "")
    return one_line(" ".join(filter(None, parts))) + " (replaced on disk)" * one.replaced


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _size(value: int | None) -> str:
    return "?" if value is None else binary_size(value)


def _of(used: int | None, total: int | None) -> str:
    return f"{_size(used)} of {_size(total)}" if total else ""


def _share(used: int | None, total: int | None) -> float | None:
    return 100 * used / total if used is not None and total else None


def _fit(text: str, room: int) -> str:
    """Return a text padded or cropped to exactly `room` columns."""
    text = cropped(one_line(text), room)
    return text + " " * (room - width(text))


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
