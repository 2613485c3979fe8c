"""Tell what was added, removed and changed from one machine or report to another."""

import click

from mlbackends.model import registry
from mlbackends_cli import exits
from mlbackends_cli.judging import FORMATS, write_outcome
from mlbackends_cli.options import COLOR, OUTPUT


@click.command(
    epilog="""\b
Examples:
  backends snapshot good.json                  while it works
  backends diff good.json -                    what has changed here since
  backends diff node1.json node2.json --format markdown
  backends diff old/ new/ --only 'cud*' --ignore '*.found_by'
"""
)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--only",
    metavar="GLOB",
    multiple=True,
    help="Compare only names that fit, such as 'cpu.*' or cudnn; a name takes all below it.",
)
@click.option(
    "--ignore", metavar="GLOB", multiple=True, help="Leave out names that fit, and all below them."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(registry.names(FORMATS)),
    default="table",
    show_default=True,
    help="How to write it; json has every value whole.",
)
@OUTPUT
@COLOR
def command(
    before: str,
    after: str,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    form: str,
    output: str,
    color: str,
) -> int:
    """Tell what was added, removed and changed from A to B, by dotted name.

    A and B are each a report that `backends info --format json` or `backends snapshot` wrote, a recorded
    machine, or - for the live one. What differs between two looks at one machine is left out: free
    memory, clocks, host names, serial numbers, and the folder in which the environment lies. Exit 1
    where they differ.
    """
    from mlbackends.audit.compare import check_globs, compare, kept, outcome_of
    from mlbackends.audit.reports import name_of, reports_of
    from mlbackends_cli.differences import listing, printed
    from mlbackends_cli.output import indented, write
    from mlbackends_cli.terminal import ProgressLine, page

    with ProgressLine() as progress:
        reports = reports_of(before, after, progress=progress)
    check_globs((*only, *ignore), *reports)
    difference = compare(*reports, names=(name_of(before), name_of(after)))
    difference = kept(difference, only, ignore)
    style = page(color, to_file=output not in ("", "-"))
    if form == "json":
        write(indented(difference), output)
    elif form == "table":
        write(printed(difference, style), output)
    elif form == "markdown":
        write(
            registry.load("mlbackends_cli.render", form).listing(listing(difference), style), output
        )
    else:
        write_outcome(outcome_of(difference), form, output, style)
    return exits.NO if difference.changes else exits.YES
