"""What `backends fleet summarize` and `run` share: comparing, showing and judging a fleet."""

from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from mlbackends.audit.reports import report_of
from mlbackends.fleet.groups import baseline_of, fleet_of
from mlbackends.fleet.judging import Finder
from mlbackends.fleet.records import united
from mlbackends_cli import exits, formats
from mlbackends_cli.charts import pictures
from mlbackends_cli.fleet import chart
from mlbackends_cli.fleet import text as fleets
from mlbackends_cli.fleet.page import fleet_page
from mlbackends_cli.options import COLOR, OUTPUT, TypedPath, format_option, together
from mlbackends_cli.output import refuse_unwritable, write
from mlbackends_cli.terminal import page

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.fleet.collection import Collection
    from mlbackends.model.fleet import Envelope

FAILURES = ("drift", "incomplete", "any", "never")

#: The options of a summary, which are those of `Summary`.
SUMMARY = together(
    click.option(
        "--by",
        metavar="FACT",
        multiple=True,
        help="Compare only nodes that have the same value of this fact (repeatable)."
        "  [default: cpu.model_name, and the names of devices]",
    ),
    click.option(
        "--baseline",
        metavar="FILE",
        type=TypedPath(),
        help="Compare with this report or recorded machine instead of the majority of the nodes.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(FAILURES),
        default="never",
        show_default=True,
        help="Exit 1 if a node differs (drift), has no report (incomplete), or either (any).",
    ),
    click.option(
        "--hazards",
        is_flag=True,
        help="Also look for known hazards, as backends fleet doctor does, and list the nodes that have them.",
    ),
    click.option("--all", "details", is_flag=True, help="Show every fact and every node."),
    click.option(
        "--plot",
        metavar="FILE.svg|FILE.png",
        default="",
        help="Draw the groups by size and their deviations, for a ticket; PNG needs the extra png.",
    ),
    format_option(also=("table", "markdown", "html")),
    OUTPUT,
    COLOR,
)


class Summary(Struct, frozen=True):
    """How a fleet is to be compared, shown and judged."""

    by: tuple[str, ...]
    baseline: str | None
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
        draw = pictures.drawing(self.plot, chart.sheet) if self.plot else None
        golden = baseline_of(report_of(self.baseline), self.baseline) if self.baseline else None
        finder = Finder(looks=self.hazards)
        collection = gather(finder.visit)
        fleet = fleet_of(collection, self.by, golden)
        fleet = replace(fleet, hazards=united((*collection.hazards, *finder.hazards)))
        style = page(self.color, self.output, details=self.details)
        own: dict[str, Any] = {
            "table": fleets.table,
            "markdown": fleets.markdown,
            "html": fleet_page,
        }
        write(formats.text_of(self.form, fleet, style, **own), self.output)
        if draw is not None:
            write(draw(fleet), self.plot)
        is_short = isinstance(fleet.expected, int) and fleet.reported < fleet.expected
        failed = {
            "drift": fleet.drifts or bool(fleet.outliers),
            "incomplete": bool(fleet.silent or fleet.garbled) or is_short,
        }
        failed["any"] = any(failed.values())
        return exits.NO if failed.get(self.fail_on) else exits.YES
