"""Check files of switches, - for standard input; without FILE, this environment's variables.

Exit 2 at the first file with an unknown name or value, whose line and nearest name are printed. A
variable that torch would ignore with a warning is an error here too.

Examples:
  backends flags check run.toml
  make-flags | backends flags check -
  backends flags check               the variables of this environment
"""

import sys

import click

from mlbackends.model.errors import BadInput
from mlbackends_cli import exits
from mlbackends_cli.commands.flags import problems_here
from mlbackends_cli.lazy import documented

_MOST = (1 << 20) + 1
"""So much of standard input is read: a byte more than a file of switches may have."""


@documented()
@click.argument("files", metavar="[FILE.toml]...", nargs=-1)
def command(files: tuple[str, ...]) -> int:
    from mlbackends.switches import files as flag_files
    from mlbackends.switches import store
    from mlbackends.switches.startup import as_error

    for path in files:
        if path == "-":
            path = "standard input"
            data = sys.stdin.buffer.read(_MOST) if sys.stdin else b""
            _print(path, len(flag_files.switches(data, path)))
        else:
            _print(path, len(flag_files.read(path)))
    if not files:
        if problems := problems_here():
            raise BadInput(as_error(problems))
        _print("this environment", len(store.environment()))
    return exits.YES


def _print(name: str, count: int) -> None:
    click.echo(f"{name}: {count} {'switch' if count == 1 else 'switches'}, all right")
