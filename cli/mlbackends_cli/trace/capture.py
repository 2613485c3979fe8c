"""A command under tracing: its options, and what is printed at its end."""

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mlbackends.base.shells import command_line as typed_line
from mlbackends.base.tables import table
from mlbackends.tracing import LIBRARIES
from mlbackends_cli.lazy import Command
from mlbackends_cli.options import COLOR, option, together
from mlbackends_cli.output import log
from mlbackends_cli.terminal import error_page
from mlbackends_cli.text.plain import log_line

if TYPE_CHECKING:
    from mlbackends.tracing.capture.command import Captured

_SHORT = 10

HELP = table(os.path.join(os.path.dirname(__file__), "options.toml"))


def capture_command(name: str, tracers: tuple[str, ...]) -> click.Command:
    """Return the command that traces these libraries; MKL has no level to choose."""
    texts = HELP["commands"]
    lines = " and ".join(f"{LIBRARIES[tracer]}'s" for tracer in tracers)
    both = "the tracing of MKL and oneDNN"
    help_text = texts["every"].format(lines=lines, tracing=both if len(tracers) > 1 else f"{lines} tracing")
    options = together(
        *_CAPTURE,
        *(_ONEDNN if "onednn" in tracers else ()),
        click.argument("command_line", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED),
    )
    command = click.command(
        name,
        cls=Command,
        context_settings={"allow_interspersed_args": False},  # what follows COMMAND is its own
        help=help_text + texts[tracers[-1]],
        epilog=f"\b\nExamples:\n{texts['examples'][name]}",
    )
    built: click.Command = command(options(partial(run, tracers)))
    return built


_CAPTURE = (
    option("-o --output FILE", HELP["output"], usual="backends-trace.log"),
    option("--append", "Append to FILE."),
    option("--rank-env rank_variables NAME,...", HELP["rank_env"], usual=""),
    option("--summary", HELP["summary"], usual="short", one_of=["none", "short", "full"]),
    option(
        "--separation",
        HELP["separation"],
        usual="auto",
        one_of=["auto", "preload", "terminal", "pipe", "none"],
    ),
    COLOR,
)
_ONEDNN = (
    option("--level", HELP["level"], usual="create", one_of=["exec", "create", "dispatch", "all"]),
    option("--components REGEX", HELP["components"], usual=""),
    option("--timestamps/--no-timestamps", "Have oneDNN print when each call began.", usual=True),
)


def run(
    tracers: tuple[str, ...],
    *,
    command_line: Sequence[str],
    output: str,
    rank_variables: str,
    summary: str,
    color: str,
    **options: Any,
) -> int:
    """Run a command with tracing on, print what came, and return the command's own exit code."""
    from mlbackends.tracing.capture import command

    page = error_page(color)
    names = tuple(each for part in rank_variables.split(",") if (each := part.strip()))
    captured = command.run(command_line, tracers, output, rank_variables=names, **options)
    with contextlib.suppress(OSError):  # nobody reads standard error
        for level, sentence in captured.notices:
            if level != "INFO" or summary == "full":
                log(f"{'warning: ' if level == 'WARNING' else ''}{sentence}")
        if summary != "none":
            log(headline(captured))
            if captured.lines and captured.files and all(map(os.path.isfile, captured.files)):
                from mlbackends.tracing.filters import where
                from mlbackends.tracing.machine import this_machine
                from mlbackends_cli.trace.listings import printed
                from mlbackends_cli.trace.reading import Logs, views

                if options["append"]:  # it may hold lines of other runs
                    log("the table covers the whole file")
                top = _SHORT if summary == "short" else 0
                requested: dict[str, dict[str, Any]] = {"summary": {"top": top}}
                if not top:
                    requested |= {"findings": {"machine": this_machine()}, "dispatch": {}}
                found = views(Logs(captured.files), requested, where())
                if not getattr(found.get("dispatch"), "count", 0):
                    found.pop("dispatch", None)
                click.echo(printed(found, "table", page, top).rstrip("\n"), err=True)
                if top:
                    more = "more: backends trace show --view findings --this-machine"
                    more += f" {typed_line([*captured.files])}"
                    click.echo(log_line(more), err=True)
    return captured.exit_code


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
