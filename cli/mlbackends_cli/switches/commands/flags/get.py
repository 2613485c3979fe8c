"""Print one bare value: text as it is, everything else as JSON.

Exit 1 if there is no value: an older switch that cannot express the setting of fp32_precision.

Examples:
  backends flags get cudnn.benchmark
"""

import click

from mlbackends.switches import store
from mlbackends.switches.files import as_data
from mlbackends.switches.table import SWITCHES
from mlbackends_cli import exits
from mlbackends_cli.lazy import documented
from mlbackends_cli.output import json_line, log, write
from mlbackends_cli.switches.commands.flags import apply, complete, with_values


@documented()
@click.argument("name", shell_complete=complete)
@click.option("--origin", is_flag=True, help="Print the origin of the value instead of the value.")
@with_values
def command(name: str, origin: bool, files: tuple[str, ...], settings: tuple[str, ...]) -> int:
    apply(files, settings)
    try:
        value = store.read(name)
    except RuntimeError as error:
        log(str(error))
        return exits.NO
    shown = store.origin(name) if origin else as_data(SWITCHES[name], value)
    write(shown if isinstance(shown, str) else json_line(shown))
    return exits.YES
