"""Show what changed on a fleet from OLD to NEW, and which nodes were left behind.

OLD and NEW are what `backends fleet summarize` reads, one file or folder each; best what it wrote with
--format json. Facts that changed on the same nodes are one change. A node is left behind if most nodes
that had the same old value have a new one, as after a rolling upgrade that did not reach it.

Examples:
  backends fleet diff before.json after.json
  backends fleet summarize reports/ --format json --output before.json
  backends fleet diff before.json after/ --fail-on left-behind
"""

import click

from mlbackends.fleet.changes import difference_of
from mlbackends_cli import exits, formats
from mlbackends_cli.fleet import text as fleets
from mlbackends_cli.fleet.sources import collected
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, option, written
from mlbackends_cli.output import write
from mlbackends_cli.terminal import page


@documented()
@click.argument("old", type=TypedPath())
@click.argument("new", type=TypedPath())
@option(
    "--fail-on",
    "Exit 1 where a node changed, came or went, or only where one was left behind or fell silent.",
    usual="change",
    one_of=["change", "left-behind", "never"],
)
@option("--all details", "Show every fact and every node.")
@written(also=("table", "markdown"))
def command(
    old: str, new: str, fail_on: str, details: bool, form: str, output: str, color: str
) -> int:
    difference = difference_of(collected([old]), collected([new]), (old, new))
    style = page(color, output, details=details)
    text = formats.text_of(form, difference, style, **fleets.forms(fleets.changes_parts))
    write(text, output)
    behind = bool(difference.silent) or any(change.left_behind for change in difference.changes)
    changed = behind or bool(difference.changes or difference.new)
    if {"change": changed, "left-behind": behind}.get(fail_on):
        return exits.NO
    return exits.YES if difference.nodes else exits.UNKNOWN
