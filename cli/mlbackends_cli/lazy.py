"""Commands as files and folders of packages: imported when they are used, documented by docstrings."""

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import click

from mlbackends.base import registry
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.patterns import pattern

_FEW_OPTIONS = 6
_EXAMPLE = pattern(r"^  (\S.*)\n?", re.MULTILINE)
_HEADING = pattern(r"^(?:Usage|Example):|^\S.*:$|^  [A-Z]\w+:$", re.MULTILINE)
#: A command, and after it a description.
_EXPLAINED = pattern(r"^( *)(\S.*?) {3,}(\S.*)$", re.MULTILINE)


def documented(**options: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a function the command of its file, whose docstring is the help."""
    return lambda function: click.command(cls=Command, **_help(function.__module__), **options)(
        function
    )


def _help(module: str) -> dict[str, Any]:
    """Return a docstring as a command's help and, from "Examples:" on, as its epilog."""
    lines = (importlib.import_module(module).__doc__ or "").split("\n")
    for at, below in enumerate(lines[1:]):
        if lines[at].endswith(":") and below.startswith("  ") and lines[at][0] != " ":
            lines[at] = f"\b\n{lines[at]}"  # click keeps the lines of such a paragraph
    text, title, examples = "\n".join(lines).partition("\b\nExamples:\n")
    return {"help": text, "epilog": title + examples}


def narrowed(text: str, width: int) -> str:
    """Return the text with the descriptions of commands below them, in paragraphs that are too wide."""
    paragraphs = text.split("\n\n")
    for at, paragraph in enumerate(paragraphs):
        if any(len(found[0]) > width for found in _EXPLAINED.finditer(paragraph)):
            paragraphs[at] = _EXPLAINED.sub(r"\1\2\n\1    \3", paragraph)
    return "\n\n".join(paragraphs)


class Command(click.Command):
    """A command whose help begins with an example, and has headings if there are many options."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help in the width of the terminal, with bold headings."""
        import shutil

        width = ctx.terminal_width or shutil.get_terminal_size().columns
        text = narrowed(super().get_help(ctx), width)
        if not ((sys.stdout and sys.stdout.isatty()) or "FORCE_COLOR" in os.environ):
            return text
        from mlbackends_cli.terminal import page  # with its records

        style = page("auto")
        ctx.color = style.color  # click strips styles from what goes to no terminal
        return _HEADING.sub(lambda found: style.styled(found[0], "bold"), text)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first example, then what click writes."""
        if example := _EXAMPLE.search(f"{self.epilog}\n{self.help}"):
            formatter.write(f"Example: {re.sub('  +', '   ', example[1])}\n\n")
        super().format_help(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        for heading, rows in self.option_sections(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def option_sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the options with their help, by heading; only "Options" if there are few."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        headings = {}  # option -> heading
        with open(os.path.join(os.path.dirname(__file__), "options.txt"), encoding="utf-8") as file:
            for line in file if len(options) > _FEW_OPTIONS else ():
                heading, _, names = line.partition(": ")
                headings.update(dict.fromkeys(names.split(), heading))
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in headings.values()}
        for option in options:
            if record := option.get_help_record(ctx):
                heading = headings.get(max(option.opts, key=len), "Options")
                sections.setdefault(heading, []).append(record)
        return {heading: rows for heading, rows in sections.items() if rows}


class FolderGroup(Command, click.Group):
    """A group with one command for each file of its packages; the file defines it as `command`.

    A folder with an `__init__.py` is a group. The name of the file is that of the command, with "_" for "-".
    Listing the commands imports none: the help line is the first line of the docstring.
    """

    def __init__(self, folder: str, *more_folders: str, **options: Any) -> None:
        super().__init__(**{"no_args_is_help": True, **_help(folder), **options})
        self.folders = (folder, *more_folders)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names, sorted."""
        del ctx
        return sorted(
            name.replace("_", "-") for folder in self.folders for name in registry.names(folder)
        )

    def _folder_of(self, name: str) -> str | None:
        """Return the package that has a command, None if none has."""
        return next((folder for folder in self.folders if name in registry.names(folder)), None)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None if its file does not exist."""
        del ctx
        name = cmd_name.replace("-", "_")
        folder = self._folder_of(name)
        if folder is None:
            return None
        entry = registry.load(folder, name)
        if error := registry.import_error(entry):
            raise BadInput(
                f"the command {cmd_name} cannot be imported: {type(error).__name__}: {error}",
                "fix or remove the package that adds it",
            )
        command: click.Command = entry.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name gets the nearest one as a suggestion."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            names = tuple(self.list_commands(ctx))
            error = UnknownName("command", args[0], names, f"{ctx.command_path} --help")
            if ctx.parent is None and args[0] in registry.names("mlbackends_probes"):
                error.hint = f"write `backends info {args[0]}`"
            raise error
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, which most readers look for, then the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with the first line of its file; only other distributions' are imported.

        Commands that the help already shows are left out.
        """
        rows = []
        for command in self.list_commands(ctx):
            if f"  {ctx.command_path} {command} " in (self.help or ""):
                continue
            name = command.replace("-", "_")
            folder = self._folder_of(name) or self.folders[0]
            path = os.path.join(importlib.import_module(folder).__path__[0], name)
            path = os.path.join(path, "__init__.py") if os.path.isdir(path) else f"{path}.py"
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    rows.append((command, file.readline().strip().strip('"')))
            else:
                text = registry.load(folder, name).__doc__ or ""
                rows.append((command, text.partition("\n")[0]))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
