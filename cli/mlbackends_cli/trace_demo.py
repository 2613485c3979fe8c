"""What `backends trace demo` shows: a capture of real calls, its first lines, its views, and what is next."""

import os
import shlex
from contextlib import ExitStack

from mlbackends.model.errors import NoBackend
from mlbackends.tracing.filters import where
from mlbackends_cli import exits
from mlbackends_cli.output import write
from mlbackends_cli.plain import cleaned
from mlbackends_cli.terminal import page
from mlbackends_cli.trace_pages import printed
from mlbackends_cli.trace_reading import Logs, views
from mlbackends_cli.trace_run import headline, say, this_machine

_LINES = 3
_TOP = 10


def demo(tracer: str, output: str, color: str) -> int:
    """Trace, and print what came; return the exit code."""
    from mlbackends.tracing.capture import command
    from mlbackends.tracing.demo.demonstrations import demonstrations

    style = page(color, to_file=False)
    tracers = ("mkl", "onednn") if tracer == "all" else (tracer,)
    with ExitStack() as stack:
        path = output or os.path.join(_folder(stack), "demo.log")
        is_first = True
        for each in demonstrations(tracers):
            write(f"Tracing a few calls of {each.what}:\n")
            captured = command.run(
                each.command,
                each.tracers,
                path,
                append=not is_first,
                environment={**os.environ, **each.variables},
            )
            is_first = False
            for level, sentence in captured.notices:
                if level != "INFO":
                    say(sentence)
            if captured.exit_code:
                raise NoBackend(
                    f"the program that calls {each.what} ended with {captured.exit_code}"
                )
            write(headline(captured).partition(": ")[0] + ". The first calls, as printed:\n")
            write("".join(_first_lines(path, each.tracers, style.width)))
            write("\n")
        made = views(
            Logs([path]),
            {"summary": {"top": _TOP}, "findings": {"machine": this_machine()}},
            where(),
        )
        write(printed(made, "table", style))
        write(_next(output))
    return exits.YES


def _folder(stack: ExitStack) -> str:
    import tempfile

    return stack.enter_context(tempfile.TemporaryDirectory(prefix="backends-demo-"))


def _first_lines(path: str, tracers: tuple[str, ...], width: int) -> list[str]:
    """Return the first calls of these tracers, as wide as the page."""
    from mlbackends.model.trace import Call
    from mlbackends.tracing.reader import read

    lines = [str(each) for each in read(path) if isinstance(each, Call) and each.tracer in tracers][
        :_LINES
    ]
    room = width - 3
    return [
        f"  {cleaned(line) if len(line) <= room else cleaned(line[: room - 1]) + '…'}\n"
        for line in lines
    ]


def _next(output: str) -> str:
    if output:
        file = shlex.quote(output)
        return (
            f"\nThe trace is in {output}. Of it:\n"
            f"  backends trace show {file} --view findings\n"
            f"  backends trace show {file} --format html --output demo.html\n"
        )
    return "\nOf your own program:  backends trace all -- python train.py\n"
