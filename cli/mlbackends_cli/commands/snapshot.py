"""Keep what a machine is: a report in a file, or the machine itself as a folder."""

import click

from mlbackends.model.records import Presence
from mlbackends_cli.options import PYTHON, TIMEOUT


@click.command(
    epilog="""\b
Examples:
  backends snapshot good.json               a report; backends diff good.json - tells what changed since
  backends snapshot machine/                a recorded machine, to be looked at elsewhere:
  backends info --root machine/             what backends info would say there
  backends doctor machine/                  and what is wrong with it
"""
)
@click.argument("target", metavar="FILE.json|DIR")
@click.option(
    "--keep-identity",
    is_flag=True,
    help="Keep host name, user, home folders, serial numbers, UUIDs and hardware addresses as they are.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False),
    help="Take it of a recorded machine, not of this one.",
)
@PYTHON
@click.option(
    "--depth",
    type=click.Choice([each.value for each in Presence if each is not Presence.ABSENT]),
    default=None,
    help="How far to go for a report: found reads files only; loadable opens libraries, usable computes"
    " with them. A recorded machine is what reading tells.  [default: usable for FILE.json]",
)
@TIMEOUT
def command(
    target: str,
    keep_identity: bool,
    root: str | None,
    python: str,
    depth: str | None,
    timeout: float,
) -> None:
    """Keep what a machine is: a report in a file, or the machine itself as a folder.

    FILE.json gets the report that `backends info --format json` prints. DIR gets those files, variables and
    outputs of commands that the probes read, and nothing else, so that `backends info --root DIR` answers
    elsewhere as here. Both are written whole or not at all.

    What names the machine or its user is replaced, by stand-ins of the same form, unless --keep-identity is
    given; no variable whose name looks like a secret is kept in either case. What is in it, and what was
    replaced, is printed, so that you can look before you share it.
    """
    from mlbackends.audit.snapshot import ENDING
    from mlbackends.model.errors import BadInput
    from mlbackends_cli import snapshot_told
    from mlbackends_cli.terminal import ProgressLine

    if target in ("-", ""):
        raise BadInput(
            "a snapshot needs a name",
            "`backends info --format json` writes a report to standard output",
        )
    if root and python:
        raise BadInput("--root looks at a recorded machine; it does not go with --python")
    is_report = target.endswith(ENDING)
    if depth not in (None, Presence.FOUND.value) and not is_report:
        raise BadInput(
            f"a recorded machine is what reading tells: --depth {depth} is for FILE.json"
        )
    with ProgressLine() as progress:
        if is_report:
            told = snapshot_told.report(
                target, root, python, Presence(depth or "usable"), timeout, keep_identity, progress
            )
        else:
            told = snapshot_told.machine(target, root, python, timeout, keep_identity, progress)
    click.echo(told, nl=False)
