"""What `backends fleet` runs on nodes: the commands, as JSON, and the engines that start them."""

from collections.abc import Sequence
from types import ModuleType

import click

from mlbackends.base import registry
from mlbackends.base.errors import BadInput
from mlbackends_cli.lazy import FolderGroup
from mlbackends_cli.options import together


def _words(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without a leading "--", which click keeps after another argument."""
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
    if any(option.partition("=")[0] == "--format" for option in options):
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


#: The options that name a cluster with workers.
CLUSTER = together(
    click.option(
        "--ray", metavar="[ADDRESS]", is_flag=False, flag_value="auto", help="Run on a Ray cluster."
    ),
    click.option(
        "--dask",
        metavar="ADDRESS",
        help="Run on the Dask cluster with the scheduler at this address.",
    ),
    click.option(
        "--engine",
        metavar="NAME[=ADDRESS]",
        help="Run on another engine, which a package provides.",
    ),
)


def named(engine: str | None, **asked: str | None) -> list[tuple[str, str]]:
    """Return the engines that are asked for, and their addresses. asked: the address of each, or None.

    Raises BadInput where there are several.
    """
    name, _, where = (engine or "").partition("=")
    every = {**asked, name: where if engine else None}
    found = [(each, address) for each, address in every.items() if address is not None]
    if len(found) > 1:
        raise BadInput(f"name one engine, not {' and '.join(name for name, _ in found)}")
    return found


def loaded(name: str) -> ModuleType:
    """Import an engine. Raises UnknownName, and BadInput if it cannot be imported."""
    module = registry.load("mlbackends.fleet.engines", name)
    if error := registry.import_error(module):
        raise BadInput(f"the engine {name} cannot be imported: {type(error).__name__}: {error}")
    return module
