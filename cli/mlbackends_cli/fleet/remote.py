"""The commands that `backends fleet` runs on nodes: which they can be, and how they print JSON."""

from collections.abc import Sequence

import click

from mlbackends.base.errors import BadInput
from mlbackends_cli.lazy import FolderGroup


def _words(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without a leading "--", which click leaves behind another argument."""
    del ctx, param
    return words[1:] if words[:1] == ("--",) else words


COMMAND = click.argument(
    "command_line", metavar="[COMMAND...]", nargs=-1, type=click.UNPROCESSED, callback=_words
)
USUAL = ("info",)


def root_command() -> click.Command:
    """Return the whole command line, of which the running command is a part."""
    return click.get_current_context().find_root().command


def as_json(words: Sequence[str], program: click.Command) -> tuple[str, ...]:
    """Return a command of `program` with --format json after its name; `info` if there are no words.

    Raises UnknownName for an unknown command, and BadInput for a command that cannot print JSON.
    """
    words = tuple(words) or USUAL
    found: click.Command | None = program
    at = 0
    with click.Context(program, info_name="backends", color=False) as context:
        while isinstance(found, FolderGroup) and at < len(words):
            _, found, _ = found.resolve_command(context, list(words[at:]))[0:3]
            at += 1
    name = " ".join(words[:at])
    options = words[at:][: words[at:].index("--")] if "--" in words[at:] else words[at:]
    if any(each.partition("=")[0] == "--format" for each in options):
        raise BadInput("nodes always print JSON; remove --format from their command")
    formats = [
        choice
        for option in (found.params if found else ())
        if option.name == "form" and isinstance(option.type, click.Choice)
        for choice in option.type.choices
    ]
    if "json" not in formats:
        hint = "info, doctor, audit, sdpa check, sdpa bench and others do"
        raise BadInput(f"`backends {name}` has no --format json, which a node must print", hint)
    return (*words[:at], "--format", "json", *words[at:])
