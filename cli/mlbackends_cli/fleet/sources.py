"""What the commands of `fleet` share: their sources, and the nodes that are expected."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from mlbackends.base.errors import BadInput, Incomplete
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.nodesets import expanded
from mlbackends.fleet.parts import parts_of, read_on
from mlbackends.fleet.sources import STANDARD_INPUT, sources_of, taken
from mlbackends.model.audit import Severity
from mlbackends_cli.options import COLOR, OUTPUT, TypedPath, format_option, together
from mlbackends_cli.report.judgement import fail_on_option
from mlbackends_cli.terminal import ProgressLine, is_terminal

if TYPE_CHECKING:
    from mlbackends.fleet.parts import Each
    from mlbackends.model.fleet import Envelope

EXPECT = click.option(
    "--expect",
    metavar="NODESET|N",
    default="",
    help="The nodes that should report: names such as node[001-064], a ClusterShell group such as @compute, "
    "or their number. Nodes that did not report are listed.",
)
SOURCES = click.argument("sources", metavar="[-|FILE|DIR]...", nargs=-1, type=TypedPath())

#: The argument and the option of every command that reads a fleet.
reading = together(SOURCES, EXPECT)

#: The options of those that judge.
OUTCOME = together(
    format_option(
        "outcome", about="Output format of the outcome, as in backends doctor and audit."
    ),
    fail_on_option(Severity.ERROR.value),
    click.option("--strict", is_flag=True, help="Exit 3 if something could not be checked."),
    click.option(
        "--all", "details", is_flag=True, help="Also show passed checks, and the evidence."
    ),
    OUTPUT,
    COLOR,
)


def expected_nodes(text: str) -> tuple[str, ...] | int | None:
    """Return the value of --expect: names, a number, or None. Raises BadInput."""
    if not text:
        return None
    if text.isdecimal() and len(text) < 10:
        return int(text)
    if not (names := expanded(text)):
        hint = "`nodeset -LL` has the groups that ClusterShell knows"
        raise BadInput(f"--expect {text} does not name any node", hint)
    return names


def collected(
    sources: Sequence[str],
    expect: str = "",
    visit: "Callable[[str, Envelope], None] | None" = None,
) -> "Collection":
    """Return the content of the sources; of standard input by default.

    visit: called with the name of a node and its envelope, for each report that was taken. Raises
    BadInput for what cannot be read, and Incomplete if no node has reported.
    """
    if not sources and is_terminal(sys.stdin):
        raise BadInput(
            "no reports: standard input is a terminal",
            "name files or a folder, or pipe into it: clush -w node[1-8] backends info --format frame"
            " | backends fleet summarize",
        )
    collection = Collection(expected_nodes(expect))
    with ProgressLine(lambda done, _, name: f"{done:,} nodes, the last {name}") as progress:
        for name in taken(sources_of(sources or (STANDARD_INPUT,)), collection, visit):
            progress(len(collection.nodes) + len(collection.silent), 0, name)
    return _of_someone(collection)


def read_by(
    each: "Each", where: str, sources: Sequence[str], expect: str, *, looks: bool
) -> "Collection":
    """Return what the sources hold, read by an engine's workers. looks: for hazards too.

    Raises BadInput for what cannot be read, MlBackendsError where a worker fails, and Incomplete if no
    node has reported.
    """
    collection = Collection(expected_nodes(expect))
    parts = parts_of(sources)
    with ProgressLine(lambda done, total, _: f"{done:,} of {total:,} parts") as progress:
        for done, total in read_on(each, where, parts, collection, looks=looks):
            progress(done, total, "")
    return _of_someone(collection)


def _of_someone(collection: "Collection") -> "Collection":
    if not (collection.nodes or collection.silent or collection.expected):
        lost = ", ".join(f"{what}: {number:,}" for what, number in collection.garbled.items())
        what = f"no report is complete ({lost})" if lost else "the input has no report"
        raise Incomplete(
            f"no node reported: {what}",
            "on the nodes run: backends info --format frame",
        )
    return collection
