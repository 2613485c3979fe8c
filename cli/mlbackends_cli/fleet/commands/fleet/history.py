"""Show what changed on a fleet over kept runs: roll-outs with their progress, and nodes that flap.

DIR is a folder that `backends fleet run --keep` filled. Each node is compared with its own previous report,
over all runs of the command that the newest run asked for. Facts that changed on the same nodes in the same
runs are one change; it states how many nodes have changed, of those that had a former value, and which
have not yet if that is the smaller part. A node flaps if a fact returned to an earlier value, or if it was
without a report twice or more.

NAME and NODESET are as in `backends fleet facts` and --expect. With --fact the values after each run are
shown, and since when nodes differ; with --node only the changes of these nodes.

Examples:
  backends fleet history reports/
  backends fleet history reports/ --fact nvidia.version
  backends fleet history reports/ --node 'node[017,020]'
  backends fleet history reports/ --format json
"""

from typing import Any

import click

from mlbackends.base.errors import BadInput, shown
from mlbackends.fleet.nodesets import expanded
from mlbackends.fleet.sources import opened_kept
from mlbackends_cli import formats
from mlbackends_cli.fleet.history import history_parts
from mlbackends_cli.fleet.sources import HELP
from mlbackends_cli.fleet.text import forms
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, option, written


@documented()
@click.argument("folder", metavar="DIR", type=TypedPath())
@option("--node NODESET", HELP["node"], many=True)
@option("--fact NAME", HELP["fact"], many=True)
@option("--all details", "Show every run, change, fact and node.")
@written(also=("table", "markdown"))
def command(
    folder: str, node: tuple[str, ...], fact: tuple[str, ...], details: bool, **written_to: Any
) -> None:
    from mlbackends.fleet.history import history_of  # SQLite, which not every Python has

    names = expanded(",".join(node)) if node else ()
    if node and not names:
        raise BadInput(f"--node {shown(','.join(node))} does not name any node")
    with opened_kept(folder) as kept:
        record = history_of(kept, names, fact)
    formats.show(record, forms(history_parts), details=details, **written_to)
