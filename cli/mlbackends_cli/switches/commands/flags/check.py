"""Check files of switches, - for standard input; without FILE, the variables of this environment.

Exit 2 at the first file with an unknown name or value; the message has the line and the nearest name. A
variable that torch would ignore with a warning is an error here.

Examples:
  backends flags check run.toml
  make-flags | backends flags check -
  backends flags check               the variables of this environment
"""

import sys
from collections.abc import Mapping

import click

from mlbackends.base.errors import BadInput
from mlbackends.switches import files as flag_files
from mlbackends.switches import store
from mlbackends.switches.listing import installed_torch, lacking
from mlbackends.switches.startup import as_error
from mlbackends.switches.table import SWITCHES
from mlbackends_cli import exits
from mlbackends_cli.lazy import documented
from mlbackends_cli.output import log, write
from mlbackends_cli.switches.commands.flags import environment_problems
from mlbackends_cli.text.plain import log_line

#: Bytes of standard input that are read: one more than a file of switches may have.
_MOST = (1 << 20) + 1


@documented()
@click.argument("files", metavar="[FILE.toml]...", nargs=-1)
def command(files: tuple[str, ...]) -> int:
    for path in files:
        if path == "-":
            path = "standard input"
            data = sys.stdin.buffer.read(_MOST) if sys.stdin else b""
            _print(path, flag_files.switches(data, path))
        else:
            _print(path, flag_files.read(path))
    if not files:
        if problems := environment_problems():
            raise BadInput(as_error(problems))
        _print("this environment", store.environment())
    return exits.YES


def _print(name: str, values: Mapping[str, object]) -> None:
    count = len(values)
    word = "switch" if count == 1 else "switches"
    write(log_line(f"{name}: {count} {word}, all right"))
    for switch, value in (
        (SWITCHES[each], value) for each, value in values.items() if each in SWITCHES
    ):
        if switch.needed_torch(value) and (torch := lacking(switch, value, installed_torch())):
            log(
                f"{switch.name}={value} needs torch {switch.needed_torch(value)}; installed here is {torch}"
            )
