"""Commands as files and folders of packages, imported when they are used; their help, and click's errors."""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import click

from mlbackends.base import registry
from mlbackends.base.errors import BadInput, UnknownName, did_you_mean, nearest
from mlbackends.base.patterns import pattern, unbroken
from mlbackends.base.shells import command_line
from mlbackends_cli.text.plain import wrapped

_FEW_OPTIONS = 6
_EXAMPLE = pattern(r"^  (\S.*)\n?", re.MULTILINE)
_HEADING = pattern(r"^(?:Usage|Example):|^\S.*:$|^  [A-Z]\w+:$", re.MULTILINE)
#: A command, and after it a description.
_EXPLAINED = pattern(r"^( *)(\S.*?) {3,}(\S.*)$", re.MULTILINE)


def documented(**options: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a function the command of its file, whose docstring is the help."""

    def decorated(function: Callable[..., Any]) -> click.Command:
        text = importlib.import_module(function.__module__).__doc__
        return click.command(cls=Command, help=text, **options)(function)

    return decorated


def narrowed(text: str, width: int) -> str:
    """Return the text with the descriptions of commands below them, in paragraphs that are too wide."""
    paragraphs = text.split("\n\n")
    for at, paragraph in enumerate(paragraphs):
        if any(len(match[0]) > width for match in _EXPLAINED.finditer(paragraph)):
            paragraphs[at] = _EXPLAINED.sub(r"\1\2\n\1    \3", paragraph)
    return "\n\n".join(paragraphs)


class _Formatter(click.HelpFormatter):
    """Writes help in which a command and a word with hyphens stay on one line."""

    def write(self, string: str) -> None:
        super().write(string.replace("\xa0", " ").replace("\u2011", "-"))

    def write_text(self, text: str) -> None:
        super().write_text(_hyphenated(unbroken(text, self.width - self.current_indent)))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        texts = ((term, _hyphenated(unbroken(text, self.width - col_max))) for term, text in rows)
        super().write_dl(list(texts), col_max, col_spacing)


def _hyphenated(text: str) -> str:
    return re.sub(r"(?<=\S)-(?=\S)", "\u2011", text)


class _Context(click.Context):
    formatter_class = _Formatter


class Command(click.Command):
    """A command whose help begins with an example, and has headings if there are many options.

    From "Examples:" on, the help is the epilog.
    """

    context_class = _Context

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.help and not self.epilog:
            lines = inspect.cleandoc(self.help).split("\n")
            for at, below in enumerate(lines[1:]):
                if lines[at].endswith(":") and below.startswith("  ") and lines[at][0] != " ":
                    lines[at] = f"\b\n{lines[at]}"  # click keeps the lines of such a paragraph
            self.help, title, examples = "\n".join(lines).partition("\b\nExamples:\n")
            self.epilog = title + examples

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
        if example := _EXAMPLE.search(self.epilog or ""):
            formatter.write(f"Example: {re.sub('  +', '   ', example[1])}\n\n")
        super().format_help(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the other examples."""
        del ctx
        text = _EXAMPLE.sub("", self.epilog or "", count=1).removeprefix("\b\nExamples:\n")
        if text := text.strip("\n"):
            formatter.write_paragraph()
            with formatter.indentation():
                is_example = text.startswith("  ")
                formatter.write_text(f"\b\nMore examples:\n{text}" if is_example else text)

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
    Listing the commands imports none: the help line is the first line of the docstring. Small commands may
    be functions in the `__init__.py`, decorated by `command.command(NAME)`, with the help as their docstring.
    """

    command_class = Command

    def __init__(self, folder: str, *more_folders: str, **options: Any) -> None:
        super().__init__(help=importlib.import_module(folder).__doc__, **options)
        self.folders = (folder, *more_folders)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help if nothing follows the group's name."""
        if not (args or ctx.resilient_parsing):
            click.echo(ctx.get_help() if ctx.parent else first_help(self))
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names, sorted."""
        del ctx
        names = (name for folder in self.folders for name in registry.names(folder))
        return sorted({*self.commands, *(name.replace("_", "-") for name in names)})

    def _folder_of(self, name: str) -> str | None:
        """Return the package that has a command, None if none has."""
        return next((folder for folder in self.folders if name in registry.names(folder)), None)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None if its file does not exist."""
        if cmd_name in self.commands:
            return super().get_command(ctx, cmd_name)
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

        Commands that the help already shows are left out, as all of ours in the help of `backends`.
        """
        rows = []
        for command in self.list_commands(ctx):
            if f"  {ctx.command_path} {command} " in (self.help or ""):
                continue
            if own := self.commands.get(command):
                rows.append((command, (own.help or "").partition("\n")[0]))
                continue
            name = command.replace("-", "_")
            folder = self._folder_of(name) or self.folders[0]
            path = os.path.join(importlib.import_module(folder).__path__[0], name)
            path = os.path.join(path, "__init__.py") if os.path.isdir(path) else f"{path}.py"
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    rows.append((command, file.readline().strip().strip('"')))
            else:
                rows.append((command, (registry.load(folder, name).__doc__ or "").partition("\n")[0]))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


#: How a message of click about a value begins: with the value as Python writes it.
_VALUE = pattern(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+) is not """)
_LONGEST = 80
_EXTRA = pattern(r"unexpected extra arguments? \((.*)\)", re.DOTALL)


def explained(error: click.ClickException, main: click.Group, arguments: Sequence[str]) -> tuple[str, str]:
    """Return the sentence and the hint for an error of click. arguments: all that `main` was given."""
    ctx = getattr(error, "ctx", None) or contexts(main, arguments)[-1]
    path = ctx.command_path
    if isinstance(error, click.NoSuchOption):
        if isinstance(ctx.command, click.Group):
            return _before_command(error.option_name, ctx, contexts(main, arguments), arguments)
        return f"`{path}` has no option {error.option_name}", _near_option(error.option_name, ctx)
    if isinstance(error, click.BadOptionUsage):  # without a value that it needs, or with one
        option = error.option_name
        param = _options(ctx).get(option)
        if param is not None and not param.is_flag:
            number = isinstance(param.type, click.types.IntParamType)
            usual = param.metavar or ("N" if number else param.type.name.upper())
            return f"{option} needs a value", f"write {option} {'|'.join(_choices(param)) or usual}"
        return f"{option} does not accept a value", f"write {option} alone"
    usage = f"usage: {' '.join(ctx.get_usage().split()[1:])}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        choices = _choices(error.param)
        hint = f"it is one of {', '.join(choices)}" if choices else usage
        return f"`{path}` needs {_title(error.param)}", hint
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _bad_value(error.message, error.param)
    if extra := _EXTRA.search(error.message):
        from mlbackends.sdpa import named_devices  # for an error

        has_device = "--device" in _options(ctx)
        option = named_devices.option_for(extra[1].strip("'")) if has_device else ""
        hint = f"did you mean `{path} {option}`?" if option else usage
        return f"`{path}` does not expect {extra[1]!r}", hint
    return error.format_message(), usage


def first_help(main: click.Command) -> str:
    """Return what the program is and the first commands, on one screen, with descriptions if these fit."""
    from mlbackends_cli.terminal import page

    style = page("auto")
    text = (main.help or "").partition("\b\nMore:\n")[0]
    lines = wrapped(text.partition("\n")[0], style.width)
    shown = [line for line in text.splitlines() if line.startswith("  ")]
    is_narrow = max(map(len, shown), default=0) > style.width
    for line in text.splitlines()[1:]:
        if line.endswith(":") and not line.startswith(" "):
            lines.append(style.styled(line[:-1], "bold underline"))
        elif line in shown:
            command, _, about = line.strip().partition("   ")
            short = f"  {command} {style.sign('·', '-')} {about.strip()}" if about else f"  {command}"
            fitting = short if len(short) <= style.width else f"  {command}"
            lines.append(fitting if is_narrow else line)
    return "\n".join([*lines, "All commands: backends help    Options: backends help info"])


def contexts(main: click.Command, arguments: Sequence[str]) -> list[click.Context]:
    """Return the contexts of the commands that are named, the innermost last."""
    found: list[click.Context] = [_Context(main, info_name="backends", **main.context_settings)]
    for word in arguments:
        group = found[-1].command
        if not isinstance(group, click.Group):
            break
        command = None if word[:1] == "-" else group.get_command(found[-1], word)
        if command is not None:
            settings = command.context_settings
            found.append(_Context(command, parent=found[-1], info_name=word, **settings))
    return found


def _before_command(
    option: str, ctx: click.Context, named: list[click.Context], arguments: Sequence[str]
) -> tuple[str, str]:
    """Return the message for an option that a group lacks: the command that has it, if there is one."""
    path, last = ctx.command_path, named[-1]
    if not isinstance(last.command, click.Group):
        if option not in _options(last):
            return f"`{path}` has no option {option}", _near_option(option, last)
        rest = list(arguments)
        for context in named[1:]:
            rest.remove(context.info_name or "")
        written = f"{last.command_path} {command_line(rest)}"
        return f"{option} belongs behind `{last.command_path}`, not before it", f"write `{written}`"
    group = cast("click.Group", ctx.command)
    commands = {name: group.get_command(ctx, name) for name in group.list_commands(ctx)}
    owners = [
        name for name, command in commands.items() if command and option in _options(click.Context(command))
    ]
    if not owners:
        return f"`{path}` has no option {option}", _near_option(option, ctx)
    example = "info" if "info" in owners else owners[0]
    message = f"{option} is an option of {', '.join(owners)}, and no command is named"
    return message, f"write `{path} {example} {option}`"


def _options(ctx: click.Context) -> dict[str, click.Option]:
    """Return the options of a command by each of their names."""
    options = [param for param in ctx.command.get_params(ctx) if isinstance(param, click.Option)]
    return {name: option for option in options for name in (*option.opts, *option.secondary_opts)}


def _near_option(option: str, ctx: click.Context) -> str:
    # Without the dashes, which all options share, so that --root is not considered similar to --color.
    options = {option.lstrip("-"): option for option in _options(ctx)}
    near = did_you_mean([options[name] for name in nearest(option.lstrip("-"), tuple(options))])
    return near or f"`{ctx.command_path} --help` lists them all"


def _bad_value(message: str, param: click.Parameter) -> tuple[str, str]:
    title, choices = _title(param), _choices(param)
    found = _VALUE.match(message)
    if found is None:
        return f"{title}: {message}", ""
    shown = found[1] if len(found[1]) <= _LONGEST else f"{found[1][:_LONGEST]}..."
    if choices:
        near = did_you_mean(nearest(found[1][1:-1], choices))
        return f"invalid value {shown} for {title}; choose from {', '.join(choices)}", near
    whole = isinstance(param.type, click.types.IntParamType)
    needed = "a whole number" if whole else "a number"
    least, most = (getattr(param.type, name, None) for name in ("min", "max"))
    if least is not None:
        needed += f", at least {least:g}" if most is None else f" from {least:g}"
    needed += f" to {most:g}" if most is not None else ""
    return f"invalid value {shown} for {title}; it must be {needed}", ""


def _title(param: click.Parameter) -> str:
    """Return the name of a parameter: --format, FILE."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    name = param.metavar or (param.name or "").upper()
    return name.removesuffix("...").strip("[]")


def _choices(param: click.Parameter) -> tuple[str, ...]:
    return tuple(map(str, getattr(param.type, "choices", ())))
