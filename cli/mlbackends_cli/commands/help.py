"""Show the help of a command, as its --help does.

Examples:
  backends help                which commands there are
  backends help info
  backends help trace show     a command of a group
"""

import click

from mlbackends.model.errors import BadInput
from mlbackends_cli.lazy import FolderGroup, documented
from mlbackends_cli.output import write_paged
from mlbackends_cli.usage import contexts


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete by the commands of the group that is named so far."""
    del param
    found = contexts(ctx.find_root().command, ctx.params.get("names") or ())[-1]
    names = found.command.list_commands(found) if isinstance(found.command, FolderGroup) else []
    return [name for name in names if name.startswith(incomplete)]


@documented()
@click.argument("names", metavar="[COMMAND]...", nargs=-1, shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> None:
    *above, found = contexts(ctx.find_root().command, names)
    if rest := list(names[len(above) :]):
        if isinstance(found.command, FolderGroup):
            found.command.resolve_command(found, rest)  # raises, with the nearest
        path = found.command_path
        hint = f"write `backends help {path.partition(' ')[2]}`"
        raise BadInput(f"`{path}` has no commands of its own", hint)
    write_paged(found.get_help())
