"""A command under tracing: its options, a table while it runs, and what is printed at its end."""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mlbackends.base.shells import command_line as typed_line
from mlbackends.tracing import LIBRARIES
from mlbackends_cli.lazy import Command
from mlbackends_cli.options import COLOR, option, together
from mlbackends_cli.output import log
from mlbackends_cli.terminal import Page, error_page, error_terminal_size
from mlbackends_cli.text.plain import log_line

if TYPE_CHECKING:
    from mlbackends.tracing.capture.command import Captured

_SHORT = 10
_LIVE_ROWS, _LEAST_ROWS = 12, 8
_LIVE_SECONDS = 0.5

_HELP = """Run a command with {tracing} on.

    COMMAND's input, output, terminal, signals and exit code are its own; nothing but {lines} lines is
    taken out of its output. All processes that it starts are traced too. The summary and what backends
    itself prints go to standard error. No file is left if no line came. Exit 127 where there is
    no such command, 126 where it cannot be executed, 2 where the trace cannot be written, before
    COMMAND runs. Where SIGKILL ends backends, COMMAND goes on.
"""
_OF_MKL = """
    MKL itself appends its lines to the file (2021.4 and newer). mkl-service prints its own lines
    if it sees MKL_VERBOSE; they go to the file too, but stay in the output where no library can be
    preloaded. A NumPy from PyPI computes with OpenBLAS, which prints none.
"""
_OF_ONEDNN = """
    Where no library can be preloaded (a static or setuid program, macOS), the output passes through
    a terminal, if standard output is one, or a pipe. COMMAND's first program alone decides that: where
    only one that it starts is static, as below a shell, ask for --separation pipe. Through a pipe, a
    program that holds its output back prints it later than it would to a terminal; nothing of it is
    lost. Lines that a program writes past C's printing functions (a shell's printf, coreutils'
    printf) stay in its output; --separation pipe takes them. macOS is not tried yet.
"""


def capture_command(name: str, tracers: tuple[str, ...], examples: str) -> click.Command:
    """Return the command that traces these libraries; MKL has no level to choose."""
    lines = " and ".join(f"{LIBRARIES[tracer]}'s" for tracer in tracers)
    both = "the tracing of MKL and oneDNN"
    help_text = _HELP.format(lines=lines, tracing=both if len(tracers) > 1 else f"{lines} tracing")
    of_onednn = "onednn" in tracers
    options = together(
        *_CAPTURE,
        *(_ONEDNN if of_onednn else ()),
        click.argument("command_line", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED),
    )
    command = click.command(
        name,
        cls=Command,
        context_settings={"allow_interspersed_args": False},  # what follows COMMAND is its own
        help=help_text + (_OF_ONEDNN if of_onednn else _OF_MKL),
        epilog=f"\b\nExamples:\n{examples}",
    )
    built: click.Command = command(options(partial(run, tracers)))
    return built


_CAPTURE = (
    option(
        "-o --output FILE",
        "Write the trace to FILE, replacing it: one line per call as the library prints it.",
        usual="backends-trace.log",
    ),
    option("--append", "Append to FILE."),
    option(
        "--rank-env rank_variables NAME,...",
        "Variables that hold a rank, the first that is set counts: OMPI_COMM_WORLD_RANK,"
        " PMI_RANK, SLURM_PROCID, RANK. Each rank gets its own file, FILE.rank0.log and so on.",
        usual="",
    ),
    option(
        "--summary",
        "What to print to standard error at the end; full has findings and refusals too.",
        usual="short",
        one_of=["none", "short", "full"],
    ),
    option(
        "--live",
        "Show a running table at the bottom of the terminal, while COMMAND prints above it. Not"
        " for programs that take the whole screen, as editors do: they draw over it.",
    ),
    option(
        "--separation",
        "How trace lines are kept out of COMMAND's output: by a small library that is preloaded"
        " into it, or by passing its output through a terminal or a pipe. With none, and for"
        " oneDNN, they stay in it.",
        usual="auto",
        one_of=["auto", "preload", "terminal", "pipe", "none"],
    ),
    COLOR,
)
_ONEDNN = (
    option(
        "--level",
        "oneDNN's verbosity level. exec: what ran; create: also what was created; dispatch:"
        " also why faster implementations refused (long); all: also checks and warnings.",
        usual="create",
        one_of=["exec", "create", "dispatch", "all"],
    ),
    option(
        "--components REGEX",
        "Only these parts of oneDNN, such as 'matmul|graph' (3.3 and newer).",
        usual="",
    ),
    option("--timestamps/--no-timestamps", "Have oneDNN print when each call began.", usual=True),
)


def run(
    tracers: tuple[str, ...],
    *,
    command_line: Sequence[str],
    output: str,
    rank_variables: str,
    summary: str,
    live: bool,
    color: str,
    **options: Any,
) -> int:
    """Run a command with tracing on, print what came, and return the command's own exit code."""
    from mlbackends.tracing.capture import command

    page = error_page(color)
    table = LiveTable(page) if live and error_terminal_size() else None
    if live and table is None:
        log("--live needs a terminal on standard error; continuing without it")
    names = tuple(each for part in rank_variables.split(",") if (each := part.strip()))
    try:
        captured = command.run(
            command_line,
            tracers,
            output,
            rank_variables=names,
            live=table.take if table else None,
            **options,
        )
    finally:
        if table:
            table.end()
    with contextlib.suppress(OSError):  # nobody reads standard error
        for level, sentence in captured.notices:
            if level != "INFO" or summary == "full":
                log(f"{'warning: ' if level == 'WARNING' else ''}{sentence}")
        if summary != "none":
            log(headline(captured))
            if captured.lines and captured.files and all(map(os.path.isfile, captured.files)):
                _print_summary(captured.files, page, summary, has_more=options["append"])
    return captured.exit_code


def _print_summary(files: Sequence[str], page: Page, length: str, *, has_more: bool) -> None:
    """Print the summary of a trace, "short" or "full". has_more: it may hold lines of other runs."""
    from mlbackends.tracing.filters import where
    from mlbackends.tracing.machine import this_machine
    from mlbackends_cli.trace.listings import printed
    from mlbackends_cli.trace.reading import Logs, views

    if has_more:
        log("the table covers the whole file")
    top = _SHORT if length == "short" else 0
    requested: dict[str, dict[str, Any]] = {"summary": {"top": top}}
    if not top:
        requested |= {"findings": {"machine": this_machine()}, "dispatch": {}}
    found = views(Logs(files), requested, where())
    if not getattr(found.get("dispatch"), "count", 0):
        found.pop("dispatch", None)
    click.echo(printed(found, "table", page, top).rstrip("\n"), err=True)
    if top:
        options = "--view findings --this-machine"
        more = f"more: backends trace show {options} {typed_line([*files])}"
        click.echo(log_line(more), err=True)


def headline(captured: "Captured") -> str:
    """Return what came, in one line."""
    by_tracer = captured.lines_by_tracer
    counts = [f"{count:,} of {LIBRARIES.get(name, name)}" for name, count in by_tracer.items() if count]
    parts = ["1 line" if captured.lines == 1 else f"{captured.lines:,} lines"]
    if counts and len(by_tracer) > 1:
        parts.append(f"({', '.join(counts)})")
    if captured.processes > 1:
        parts.append(f"from {captured.processes} processes")
    parts.append(f"in {captured.seconds:.1f} s")
    files = ", ".join(captured.files)
    return " ".join(parts) + (f": {files}" if files else "")


class LiveTable:
    """A table at the bottom of the terminal, while a command prints above it.

    The terminal scrolls only the rows above: what the command prints stays whole. A program that takes
    the whole screen draws over it: it asks the terminal itself for the rows, and sets what scrolls.
    """

    def __init__(self, page: Page) -> None:
        from mlbackends.tracing.viewing import begin
        from mlbackends.tracing.walk import Walk

        self._page = page
        self._summary: Any = begin("summary")
        self._walk = Walk([self._summary])
        self._start = self._drawn = time.monotonic()
        self._size = (0, 0)
        self._rows: list[str] = []

    def take(self, lines: list[bytes]) -> None:
        """Take in lines without their ends, if there are any, and draw if it is time."""
        if lines:
            self._walk.add([b"\n".join(lines) + b"\n"])
            self._rows = []
        if time.monotonic() - self._drawn >= _LIVE_SECONDS:
            self._draw()

    def end(self) -> None:
        """Give the rows back to the terminal."""
        if self._size != (0, 0):
            first = self._size[1] - _height(self._size[1]) + 1
            _write(f"\0337\033[r\0338\0337\033[{first};1H\033[J\0338")
            self._size = (0, 0)

    def _draw(self) -> None:
        from mlbackends.tracing.finder import took
        from mlbackends_cli.trace.listings import printed

        size = error_terminal_size()
        if size is None or size[1] < _LEAST_ROWS:
            return
        width, height = size[0] - 1, _height(size[1])
        text = ""
        if size != self._size:
            # Move the lines there up, then let the terminal scroll only the rows above.
            up = "\n" * height + f"\033[{height}A" if self._size == (0, 0) else ""
            text = f"{up}\0337\033[1;{size[1] - height}r\0338"
            self._size, self._rows = size, []
        seconds = took((time.monotonic() - self._start) * 1e9)
        head = f"-- {seconds}, {self._walk.lines:,} lines ".ljust(width, "-")
        if not self._rows:  # else only the time has gone on
            self._summary.top = height - 4
            page = Page(width=width, color=False, unicode=self._page.unicode)
            self._rows = [
                *printed({"summary": self._summary.result()}, "table", page).splitlines(),
                *[""] * height,
            ]
        text += "\0337"
        for number, row in enumerate([head, *self._rows][:height], size[1] - height + 1):
            # What does not fit on one row would push the others off.
            text += f"\033[{number};1H\033[K{row[:width]}"
        _write(f"{text}\0338")
        self._drawn = time.monotonic()


def _height(rows: int) -> int:
    return min(_LIVE_ROWS, rows // 2)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
