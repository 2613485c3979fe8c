"""Run a command with MKL's and oneDNN's tracing on, and read, explain and compare traces.

Both libraries can print a line for every call that they run. mkl, onednn and all run a command
and collect these lines in a file, off its own output; show and diff read such files, and any
log that has the lines among other text, from MKL-DNN 0.x to oneDNN 3.13 and MKL 2018 to 2026.
In Python, `with mlbackends.trace("onednn") as session:` does the same for a few calls.

Examples:
  backends trace onednn -- python train.py           trace, and a summary at the end
  backends trace all -o run.log -- mpirun -n 4 ./solver
  backends trace show run.log --view findings        what to look at
  backends trace diff before.log after.log           exit 1 where something is slower
"""

import click

from mlbackends.base.errors import UnknownName
from mlbackends_cli.lazy import FolderGroup
from mlbackends_cli.trace.capture import capture_command


class _Group(FolderGroup):
    """A word that is not a command is probably a program to run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except UnknownName:
            error = UnknownName("trace command", args[0], tuple(self.list_commands(ctx)))
            if "did you mean" not in error.hint:
                error.hint += f"; to run a command: backends trace all -- {args[0]} ..."
            raise error from None


command = _Group(__name__, name="trace")
for _tracers in (("mkl", "onednn"), ("mkl",), ("onednn",)):
    command.add_command(capture_command("all" if _tracers[1:] else _tracers[0], _tracers))
