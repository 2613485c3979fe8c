"""click's errors in the form of all others: what is wrong, and what to type."""

import re
from collections.abc import Sequence
from typing import cast

import click

from mlbackends.base.errors import did_you_mean, nearest
from mlbackends.base.shells import command_line

#: How a message of click about a value begins: with the value as Python writes it.
_VALUE = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+) is not """)
_LONGEST = 80
_EXTRA = re.compile(r"unexpected extra arguments? \((.*)\)", re.DOTALL)


def explained(
    error: click.ClickException, main: click.Group, arguments: Sequence[str]
) -> tuple[str, str]:
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
        return f"{option} takes no value", f"write {option} alone"
    usage = f"usage: {' '.join(ctx.get_usage().split()[1:])}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        choices = _choices(error.param)
        hint = f"it is one of {', '.join(choices)}" if choices else usage
        return f"`{path}` needs {_title(error.param)}", hint
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _bad_value(error.message, error.param)
    if extra := _EXTRA.search(error.message):
        return f"`{path}` takes no {extra[1]!r}", usage
    return error.format_message(), usage


def first_help(main: click.Command) -> str:
    """Return the commands that the help begins with, on one screen, with descriptions if these fit."""
    from mlbackends_cli.terminal import error_page

    page = error_page("auto")
    shown = [line for line in (main.help or "").splitlines() if line.startswith("  ")]
    is_narrow = max(map(len, shown), default=0) > page.width
    lines = []
    for line in (main.help or "").splitlines():
        if line.endswith(":") and not line.startswith(" "):
            lines.append(page.styled(line[:-1], "bold underline"))
        elif line in shown:
            command, _, text = line.strip().partition("   ")
            short = f"  {command} {page.sign('·', '-')} {text.strip()}" if text else f"  {command}"
            fitting = short if len(short) <= page.width else f"  {command}"
            lines.append(fitting if is_narrow else line)
    return "\n".join([*lines, "All commands: backends help    Options: backends help info"])


def contexts(main: click.Command, arguments: Sequence[str]) -> list[click.Context]:
    """Return the contexts of the commands that are named, the innermost last."""
    found = [click.Context(main, info_name="backends", **main.context_settings)]
    for word in arguments:
        group = found[-1].command
        if not isinstance(group, click.Group):
            break
        command = None if word[:1] == "-" else group.get_command(found[-1], word)
        if command is not None:
            settings = command.context_settings
            found.append(click.Context(command, parent=found[-1], info_name=word, **settings))
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
        for each in named[1:]:
            rest.remove(each.info_name or "")
        written = f"{last.command_path} {command_line(rest)}"
        return f"{option} belongs behind `{last.command_path}`, not before it", f"write `{written}`"
    group = cast("click.Group", ctx.command)
    commands = {name: group.get_command(ctx, name) for name in group.list_commands(ctx)}
    owners = [
        name for name, each in commands.items() if each and option in _options(click.Context(each))
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
    near = did_you_mean([options[each] for each in nearest(option.lstrip("-"), tuple(options))])
    return near or f"`{ctx.command_path} --help` has them all"


def _bad_value(message: str, param: click.Parameter) -> tuple[str, str]:
    title, choices = _title(param), _choices(param)
    found = _VALUE.match(message)
    if found is None:
        return f"{title}: {message}", ""
    shown = found[1] if len(found[1]) <= _LONGEST else f"{found[1][:_LONGEST]}..."
    if choices:
        near = did_you_mean(nearest(found[1][1:-1], choices))
        return f"{title} cannot be {shown}: it is one of {', '.join(choices)}", near
    whole = isinstance(param.type, click.types.IntParamType)
    needed = "a whole number" if whole else "a number"
    least, most = (getattr(param.type, name, None) for name in ("min", "max"))
    needed += f" from {least:g}" if least is not None else ""
    needed += f" to {most:g}" if most is not None else " on" if least is not None else ""
    return f"{title} cannot be {shown}: it is {needed}", ""


def _title(param: click.Parameter) -> str:
    """Return the name of a parameter: --format, FILE."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    name = param.metavar or (param.name or "").upper()
    return name.removesuffix("...").strip("[]")


def _choices(param: click.Parameter) -> tuple[str, ...]:
    return tuple(map(str, getattr(param.type, "choices", ())))
