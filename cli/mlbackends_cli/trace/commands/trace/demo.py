"""Trace a few real calls of what is installed, and show what comes."""

import os
from contextlib import ExitStack
from itertools import islice
from typing import Any

import click

from mlbackends.base.errors import NoBackend
from mlbackends.base.mounts import check_temporary
from mlbackends.base.shells import command_line
from mlbackends_cli import exits
from mlbackends_cli.lazy import Command
from mlbackends_cli.options import COLOR
from mlbackends_cli.output import log, write
from mlbackends_cli.terminal import page
from mlbackends_cli.text.plain import cleaned

_LINES = 3
_TOP = 10


@click.command(
    "demo",
    cls=Command,
    epilog="""\b
Examples:
  backends trace demo
  backends trace demo onednn -o demo.log
""",
)
@click.argument("tracer", type=click.Choice(["mkl", "onednn", "all"]), default="all")
@click.option("-o", "--output", metavar="FILE", default="", help="Keep the trace in FILE.")
@COLOR
def command(tracer: str, output: str, color: str) -> int:
    """Trace a few real calls of what is installed, and show what comes.

    It takes the oneDNN and the MKL that it finds, or those inside torch. Exit 1 where neither is here.
    """
    import tempfile

    from mlbackends.tracing.capture.command import run
    from mlbackends.tracing.demo.demonstrations import demonstrations
    from mlbackends.tracing.filters import where
    from mlbackends.tracing.machine import this_machine
    from mlbackends_cli.trace.capture import headline
    from mlbackends_cli.trace.listings import printed
    from mlbackends_cli.trace.reading import Logs, views

    style = page(color)
    tracers = ("mkl", "onednn") if tracer == "all" else (tracer,)
    with ExitStack() as stack:
        path = output
        if not output:
            check_temporary()
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="backends-demo-"))
            path = os.path.join(folder, "demo.log")
        for number, each in enumerate(demonstrations(tracers)):
            write(f"Tracing a few calls of {each.what}:\n")
            captured = run(
                each.command,
                each.tracers,
                path,
                append=number > 0,
                environment={**os.environ, **each.variables},
            )
            for level, sentence in captured.notices:
                if level != "INFO":
                    log(sentence)
            if captured.exit_code:
                raise NoBackend(
                    f"the program that calls {each.what} ended with {captured.exit_code}"
                )
            write(headline(captured).partition(": ")[0] + ". The first calls, as printed:\n")
            room = style.width - 3
            for line in _first_calls(path, each.tracers):
                write(f"  {cleaned(line if len(line) <= room else f'{line[: room - 1]}…')}\n")
            write("\n")
        options: dict[str, dict[str, Any]] = {
            "summary": {"top": _TOP},
            "findings": {"machine": this_machine()},
        }
        found = views(Logs([path]), options, where())
        write(printed(found, "table", style))
    if output:
        file = command_line([output])
        write(
            f"\nThe trace is in {output}. Of it:\n"
            f"  backends trace show {file} --view findings --this-machine\n"
            f"  backends trace show {file} --format html --output demo.html\n"
        )
    else:
        write("\nOf your own program:  backends trace all -- python train.py\n")
    return exits.YES


def _first_calls(path: str, tracers: tuple[str, ...]) -> list[str]:
    """Return lines of a trace, which is closed behind them: Windows removes no file that is open."""
    from mlbackends.model.trace import Call
    from mlbackends.tracing.reader import read

    calls = (each for each in read(path) if isinstance(each, Call) and each.tracer in tracers)
    return [str(call) for call in islice(calls, _LINES)]
