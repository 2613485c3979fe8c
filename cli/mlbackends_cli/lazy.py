"""A click group whose commands are the files and folders of a package, each imported when it is used."""

import importlib
import os
from typing import Any

import click

from mlbackends.model import registry
from mlbackends.model.errors import BadInput, UnknownName


class FolderGroup(click.Group):
    """A group with one command for each file of a package; the file defines it as `command`.

    A folder with an `__init__.py` is a group, where the package sets FOLDERS_ARE_ENTRIES = True. The name
    of the file is that of the command, with "_" for "-". Listing the commands imports none: the help line
    is the first line of the docstring.
    """

    def __init__(self, folder: str, **options: Any) -> None:
        super().__init__(**options)
        self.folder = folder

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names, sorted."""
        del ctx
        return [name.replace("_", "-") for name in registry.names(self.folder)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None where there is no such file."""
        del ctx
        name = cmd_name.replace("-", "_")
        if name not in registry.names(self.folder):
            return None
        entry = registry.load(self.folder, name)
        if error := registry.import_error(entry):
            raise BadInput(
                f"the command {cmd_name} cannot be imported: {type(error).__name__}: {error}",
                "mend or remove the package that adds it",
            )
        command: click.Command = entry.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a name that is none gets the nearest one as a suggestion."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise UnknownName("command", args[0], tuple(self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their lines of help."""
        rows = [(name, first_line(self.folder, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def first_line(package: str, name: str) -> str:
    """Return the first line of a command's docstring; only another distribution's command is imported."""
    name = name.replace("-", "_")
    path = os.path.join(importlib.import_module(package).__path__[0], name)
    path = os.path.join(path, "__init__.py") if os.path.isdir(path) else f"{path}.py"
    if not os.path.isfile(path):
        return (registry.load(package, name).__doc__ or "").partition("\n")[0]
    with open(path, encoding="utf-8") as file:
        return file.readline().strip().strip('"')
