"""Print the pipeline that does on an engine what backends fleet run does, to type or to change.

COMMAND is a command of backends that has --format json, without that option; info by default.

Examples:
  backends fleet recipe slurm
  backends fleet recipe kubernetes -- doctor
"""

import json
import os
import shlex
import tomllib

import click

from mlbackends_cli.fleet.remote import COMMAND, as_json, root_command
from mlbackends_cli.lazy import documented
from mlbackends_cli.output import write

ENGINES = ("slurm", "clush", "pdsh", "mpi", "ansible", "kubernetes", "ray", "dask")


@documented(context_settings={"allow_interspersed_args": False})
@click.argument("engine", type=click.Choice(ENGINES))
@COMMAND
def command(engine: str, command_line: tuple[str, ...]) -> None:
    as_json(command_line, root_command())  # refuses what nodes cannot run
    write(recipe(engine, command_line), "")


def recipe(engine: str, command_line: tuple[str, ...] = ()) -> str:
    """Return the recipe of an engine for a command of ours."""
    with open(os.path.join(os.path.dirname(__file__), "recipes.toml"), "rb") as file:
        text = tomllib.load(file)[engine]
    words = ["backends", "fleet", "envelope"]
    words += ["--", *command_line] if command_line else []
    text = text.lstrip("\n").replace("{command}", shlex.join(words))
    return str(text.replace("{words}", json.dumps(words)))
