"""A click group whose commands are the files of a folder, each imported when it is used."""

import importlib
import os
from typing import Any

import click

from mlbackends.model import registry
from mlbackends.model.errors import UnknownName


class FolderGroup(click.Group):
    """A group with one command for each file of a package; the file has it as `command`.

    A file's name is the command's, "_" standing for "-". Listing them imports none: the line of help
    is the first line of the file's docstring.
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
        command: click.Command = importlib.import_module(f"{self.folder}.{name}").command
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


def first_line(folder: str, name: str) -> str:
    """Return the first line of a file's docstring, without importing it."""
    package = importlib.import_module(folder)
    path = os.path.join(package.__path__[0], name.replace("-", "_") + ".py")
    with open(path, encoding="utf-8") as file:
        return file.readline().strip().strip('"')
