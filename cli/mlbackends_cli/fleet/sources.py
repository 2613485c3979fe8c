"""What the commands of `fleet` share: sources and expected nodes; comparing, showing and judging a fleet."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from mlbackends.audit.catalogue import codes
from mlbackends.audit.reports import report_of
from mlbackends.base.errors import BadInput, Incomplete, UnknownName, shown
from mlbackends.base.tables import table
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.expected import read, without_expected
from mlbackends.fleet.groups import Baseline, baseline_of, fleet_of
from mlbackends.fleet.judging import Finder
from mlbackends.fleet.membership import Membership, membership_of
from mlbackends.fleet.nodesets import expanded
from mlbackends.fleet.parts import Each, parts_of, read_on
from mlbackends.fleet.records import united
from mlbackends.fleet.sources import STANDARD_INPUT, sources_of, taken
from mlbackends_cli import exits, formats
from mlbackends_cli.charts import svg
from mlbackends_cli.fleet import text as fleets
from mlbackends_cli.fleet.actions import ACTIONS
from mlbackends_cli.fleet.metrics import fleet_metrics
from mlbackends_cli.fleet.page import fleet_page, sheet
from mlbackends_cli.options import TypedPath, format_option, option, together, written
from mlbackends_cli.output import refuse_unwritable, write
from mlbackends_cli.report import judgement
from mlbackends_cli.terminal import ProgressLine, is_terminal, page

if TYPE_CHECKING:
    from mlbackends.model.fleet import Envelope

HELP = table(os.path.join(os.path.dirname(__file__), "options.toml"))
EXPECT = option("--expect NODESET|N", HELP["expect"], usual="")
SOURCES = click.argument("sources", metavar="[-|FILE|DIR]...", nargs=-1, type=TypedPath())

#: The argument and the option of every command that reads a fleet.
reading = together(SOURCES, EXPECT)

#: The options of those that judge.
OUTCOME = together(
    format_option("outcome", also=ACTIONS, about=HELP["outcome_format"]),
    judgement.OUTCOME,
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
    sources: Sequence[str], expect: str = "", visit: "Callable[[str, Envelope], None] | None" = None
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


def read_by(each: "Each", where: str, sources: Sequence[str], expect: str, *, looks: bool) -> "Collection":
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
        raise Incomplete(f"no node reported: {what}", "on the nodes run: backends info --format frame")
    return collection


FAILURES = ("drift", "incomplete", "any", "never")

#: The options of a summary, which are those of `Summary`.
SUMMARY = together(
    option("--by FACT", HELP["by"], many=True),
    option("--by-group SOURCE", HELP["by_group"], usual=""),
    option("--baseline baselines [GROUP=]FILE", HELP["baseline"], many=True, kind=TypedPath()),
    judgement.EXPECTED,
    option("--fail-on", HELP["fail_on"], usual="never", one_of=FAILURES),
    option("--hazards", HELP["hazards"]),
    option("--all details", "Show every fact and every node."),
    option("--plot FILE.svg|FILE.png", HELP["plot"], usual=""),
    written(also=("table", "markdown", "html", "prometheus")),
)


class Summary(Struct, frozen=True):
    """How a fleet is to be compared, shown and judged."""

    by: tuple[str, ...]
    by_group: str
    baselines: tuple[str, ...]
    expected: str | None
    fail_on: str
    hazards: bool
    details: bool
    plot: str
    form: str
    output: str
    color: str

    def of(self, gather: "Callable[[Callable[[str, Envelope], None]], Collection]") -> int:
        """Print what `gather` collects; return the exit code.

        gather: is given what it must call with each report that was taken.
        """
        if self.plot:
            refuse_unwritable(self.output or "-", self.plot)
        draw = svg.drawing(self.plot, sheet) if self.plot else None
        membership = membership_of(self.by_group) if self.by_group else None
        golden = self._baselines(membership)
        accepted = read(self.expected, "fact", *(["hazard"] if self.hazards else []))
        finder = Finder(looks=self.hazards)
        collection = gather(finder.visit)
        fleet = fleet_of(collection, self.by, golden.pop("", None), membership, golden)
        fleet = replace(fleet, hazards=united((*collection.hazards, *finder.hazards)))
        fleet = without_expected(fleet, accepted, codes() if self.hazards else ())
        style = page(self.color, self.output, details=self.details)
        forms = {**fleets.forms(fleets.fleet_parts), "html": fleet_page, "prometheus": fleet_metrics}
        mode = 0o644 if formats.is_for_collectors(self.form) else None
        write(formats.text_of(self.form, fleet, style, **forms), self.output, mode=mode)
        if draw is not None:
            write(draw(fleet), self.plot)
        is_short = isinstance(fleet.expected, int) and fleet.reported < fleet.expected
        failed = {
            "drift": fleet.drifts or bool(fleet.outliers),
            "incomplete": bool(fleet.silent or fleet.garbled) or is_short,
        }
        failed["any"] = any(failed.values()) or bool(fleet.flagged)
        if failed.get(self.fail_on):
            return exits.NO
        return exits.YES if fleet.reported else exits.UNKNOWN

    def _baselines(self, membership: Membership | None) -> dict[str, Baseline]:
        """Return the baselines by group, "" for that of all others. Raises BadInput and UnknownName."""
        found: dict[str, Baseline] = {}
        for text in self.baselines:
            group, sign, path = text.partition("=") if membership else ("", "", text)
            if not membership and "=" in text and not os.path.exists(text):
                raise BadInput(f"--baseline {shown(text)} is for a group", "--by-group makes groups")
            if not sign:
                group, path = "", text
            elif not path:
                raise BadInput(f"--baseline {shown(text)} does not name a file")
            elif membership and membership.names and group not in membership.names:
                raise UnknownName(f"group of {membership.source}", group, membership.names)
            if group in found:
                which = f"group {shown(group)}" if group else "all nodes"
                hint = "" if membership else "--by-group makes groups, and GROUP=FILE is the baseline of one"
                raise BadInput(f"--baseline is there twice for {which}", hint)
            found[group] = baseline_of(report_of(path), path)
        return found
