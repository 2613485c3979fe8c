"""Tell which nodes differ, in what, and which said nothing.

Each source is a file, a folder of files or -, standard input, which is read where none is named. Read are
frames, reports and envelopes as JSON, one line or many, behind the labels of srun -l, pdsh, clush, mpirun
--tag-output, kubectl --prefix and Ansible or without any; recorded machines; and what this command wrote as
JSON, so that parts of a fleet can be put together.

Nodes of one kind, by default of the same CPU and GPU, are compared with what most of them have. Facts that
split the nodes alike are one deviation, the smallest first. What is volatile or names a machine is not
compared, and metrics may differ by a hundredth. A label of the transport comes before the name in a
report. A second report of a node is counted, and the first is taken.

Examples:
  srun -N8 --ntasks-per-node=1 backends info --format frame | backends fleet summarize --expect 8
  backends fleet summarize reports/ --expect 'node[001-064]' --fail-on any
  backends fleet summarize reports/ --baseline good.json --fail-on drift
  backends fleet summarize rack1.json rack2.json --format html --output fleet.html
  backends fleet summarize reports/ --hazards --plot fleet.svg
"""

import click
from msgspec.structs import replace

from mlbackends.model.errors import BadInput
from mlbackends_cli import exits, formats
from mlbackends_cli.fleets import collected, reading
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, TypedPath, format_option
from mlbackends_cli.output import refuse_unwritable, write
from mlbackends_cli.terminal import page
from mlbackends_cli.text import fleets

FAILURES = ("drift", "incomplete", "any", "never")


@documented()
@reading
@click.option(
    "--by",
    metavar="FACT",
    multiple=True,
    help="Compare only nodes with each other that have the same of this fact; given again, of each."
    "  [default: cpu.model_name, and the names of devices]",
)
@click.option(
    "--baseline",
    metavar="FILE",
    type=TypedPath(),
    help="Compare with this report or recorded machine, not with what most nodes have.",
)
@click.option(
    "--fail-on",
    type=click.Choice(FAILURES),
    default="never",
    show_default=True,
    help="Exit 1 where a node differs (drift), where one has no report (incomplete), or either.",
)
@click.option(
    "--hazards",
    is_flag=True,
    help="Look for known hazards too, as backends fleet doctor does, and tell on which nodes they are.",
)
@click.option("--all", "details", is_flag=True, help="Show every fact and every node.")
@click.option(
    "--plot",
    metavar="FILE.svg|FILE.png",
    default="",
    help="Draw the groups by size and what deviates, for a ticket; PNG needs mlbackends[png].",
)
@format_option(also=("table", "markdown", "html"))
@OUTPUT
@COLOR
def command(
    sources: tuple[str, ...],
    expect: str,
    by: tuple[str, ...],
    baseline: str | None,
    fail_on: str,
    hazards: bool,
    details: bool,
    plot: str,
    form: str,
    output: str,
    color: str,
) -> int:
    from mlbackends.audit.reports import LIVE, report_of
    from mlbackends.fleet.groups import baseline_of, fleet_of
    from mlbackends_cli.charts import fleet as chart
    from mlbackends_cli.charts import pictures
    from mlbackends_cli.web.fleet_page import fleet_page

    if plot:
        refuse_unwritable(output or "-", plot)
    draw = pictures.drawing(plot, chart.sheet) if plot else None
    if baseline == LIVE and LIVE in (sources or (LIVE,)):
        raise BadInput("- is standard input here; the baseline needs a file")
    golden = baseline_of(report_of(baseline), baseline) if baseline else None
    if hazards:
        from mlbackends.audit.runner import examine
        from mlbackends.fleet import judging

        judge = judging.Judge(examine)
        collection = collected(sources, expect, judge.visit)
        fleet = replace(fleet_of(collection, by, golden), hazards=judging.hazards(judge))
    else:
        fleet = fleet_of(collected(sources, expect), by, golden)
    style = page(color, output, details=details)
    own = {"table": fleets.table, "markdown": fleets.markdown, "html": fleet_page}
    write(formats.text_of(form, fleet, style, **own), output)
    if draw is not None:
        write(draw(fleet), plot)
    is_incomplete = bool(fleet.silent or fleet.garbled) or _is_short(fleet.expected, fleet.reported)
    failed = {"drift": fleet.drifts, "incomplete": is_incomplete}
    failed["any"] = any(failed.values())
    return exits.NO if failed.get(fail_on) else exits.YES


def _is_short(expected: tuple[str, ...] | int | None, reported: int) -> bool:
    return isinstance(expected, int) and reported < expected
