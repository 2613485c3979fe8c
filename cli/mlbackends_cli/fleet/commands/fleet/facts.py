"""Show how many nodes have which value of a fact, the rarest first.

NAME is a dotted name such as nvidia.version; a name includes all names below it, as packages.distributions
does; or a glob such as '*.version'. --differing shows every fact that has several values. SOURCE is what
`backends fleet summarize` reads: - or nothing for standard input, files, folders.

Examples:
  backends fleet facts nvidia.version reports/
  backends fleet facts packages.distributions.torch fleet.json
  backends fleet facts --differing reports/
"""

import os

import click

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.fleet.groups import facts_of_fleet
from mlbackends_cli import formats
from mlbackends_cli.fleet import text as fleets
from mlbackends_cli.fleet.sources import EXPECT, collected
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, option, written
from mlbackends_cli.output import write
from mlbackends_cli.terminal import page


@documented()
@click.argument("words", metavar="NAME [SOURCE]...", nargs=-1, type=TypedPath())
@option("--differing", "Show every fact that has several values; no NAME.")
@EXPECT
@option("--all details", "Show every node.")
@written(also=("table", "markdown"))
def command(
    words: tuple[str, ...],
    differing: bool,
    expect: str,
    details: bool,
    form: str,
    output: str,
    color: str,
) -> None:
    if not (words or differing):
        raise BadInput(
            "no fact: name one, such as nvidia.version", "--differing shows all that differ"
        )
    names, sources = ((), words) if differing else (words[:1], words[1:])
    is_path = bool(names) and os.path.exists(names[0])
    hint = f"name the fact first, as in nvidia.version {names[0]}, or --differing" if names else ""
    if is_path and not sources:
        raise BadInput(f"{names[0]} is a file or folder, not the name of a fact", hint)
    collection = collected(sources, expect)
    try:
        facts = facts_of_fleet(collection, names)
    except UnknownName as error:
        if not is_path:
            raise
        raise BadInput(f"{error}; {names[0]} is a file or folder", hint) from None
    style = page(color, output, details=details)
    text = formats.text_of(form, facts, style, **fleets.forms(fleets.facts_parts))
    write(text, output)
