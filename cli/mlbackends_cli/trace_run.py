"""A command under tracing, and what is said of it on standard error."""

import contextlib
import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from mlbackends_cli.terminal import Page, columns, is_terminal, wants_color
from mlbackends_cli.trace_live import LiveTable, terminal_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mlbackends.model.trace_views import AnyView
    from mlbackends.tracing.capture.command import Captured

_SHORT = 10
_NAMES = {"mkl": "MKL", "onednn": "oneDNN"}


def run(
    command_line: "Sequence[str]",
    tracers: tuple[str, ...],
    output: str,
    *,
    rank_variables: str,
    said: str,
    live: bool,
    color: str,
    **options: "Any",
) -> int:
    """Run a command with tracing on, tell what came, and return the command's own exit code."""
    from mlbackends.tracing.capture import command

    page = error_page(color)
    table = LiveTable(page) if live and terminal_size() else None
    if live and table is None:
        say("--live needs a terminal at standard error; the trace is taken without it")
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
        tell(captured, said, page, has_more=bool(options.get("append")))
    return captured.exit_code


def tell(captured: "Captured", said: str, page: Page, *, has_more: bool) -> None:
    """Print notices, and as much of the summary as is wanted.

    has_more: the files may hold lines of other runs.
    """
    for level, sentence in captured.notices:
        if level != "INFO" or said == "full":
            say(f"{'warning: ' if level == 'WARNING' else ''}{sentence}")
    if said == "none":
        return
    say(headline(captured))
    if not captured.lines or not captured.files or not all(map(os.path.isfile, captured.files)):
        return
    if has_more:
        say("the table is of all that the file holds")
    views = seen(captured.files, said)
    from mlbackends_cli.trace_pages import printed

    top = _SHORT if said == "short" else 0
    click.echo(printed(views, "table", page, top).rstrip("\n"), err=True)
    if said == "short":
        files = shlex.join(captured.files)
        click.echo(f"more: backends trace show --view findings {files}", err=True)


def seen(files: "Sequence[str]", said: str) -> "Mapping[str, AnyView]":
    """Return the views that a summary shows."""
    from mlbackends.tracing.filters import where
    from mlbackends_cli.trace_reading import Logs, views

    wanted: dict[str, dict[str, Any]] = {
        "summary": {"top": _SHORT if said == "short" else 0},
    }
    if said == "full":
        wanted |= {"findings": {"machine": this_machine()}, "dispatch": {}}
    made = views(Logs(files), wanted, where())
    return {name: view for name, view in made.items() if name != "dispatch" or _holds(view)}


def _holds(view: "AnyView") -> bool:
    return bool(getattr(view, "count", 0))


def this_machine() -> "Any":
    """Return what is known of this machine beside a trace that was made on it."""
    from mlbackends.cpu import get_cpu_capability
    from mlbackends.tracing.finder import Machine

    return Machine(capability=get_cpu_capability())


def headline(captured: "Captured") -> str:
    """Return what came, in one line."""
    told = [
        f"{count:,} of {_NAMES.get(name, name)}"
        for name, count in captured.lines_by_tracer.items()
        if count
    ]
    what = "1 line" if captured.lines == 1 else f"{captured.lines:,} lines"
    parts = [what + (f" ({', '.join(told)})" if told and len(captured.lines_by_tracer) > 1 else "")]
    if captured.processes > 1:
        parts.append(f"from {captured.processes} processes")
    parts.append(f"in {captured.seconds:.1f} s")
    files = ", ".join(captured.files)
    return " ".join(parts) + (f": {files}" if files else "")


def error_page(color: str) -> Page:
    """Describe what standard error can show."""
    terminal = is_terminal(sys.stderr)
    encoding = (getattr(sys.stderr, "encoding", "") or "ascii").lower().replace("-", "")
    size = terminal_size()
    told = os.environ.get("COLUMNS", "")
    wide = size[0] if size and not told.isdecimal() else columns(os.environ)
    return Page(
        width=max(40, wide),
        color=wants_color(color, terminal, os.environ),
        unicode=encoding.startswith("utf"),
    )


def say(sentence: str) -> None:
    """Print one line to standard error."""
    with contextlib.suppress(OSError):
        click.echo(f"backends: {sentence}", err=True)
