"""Show what was added, removed and changed from A to B, by dotted name.

A and B are each a report that `backends info --format json` or `backends snapshot` wrote, a recorded
machine, or - for the live one. Values that change by themselves are not compared: free memory, clocks,
host names, serial numbers, and the folder of the environment.

What became worse is an error or a warning: a device or a library that is gone, an older version, a
lower limit, an instruction set that is gone, a new warning of a driver. Anything else that is new or
different is a note. Exit 1 if the two differ; with --fail-on error, if there is an error.
Several names that change to the same value, such as that of a new driver, are one finding; json has each.

Examples:
  backends diff good.json -                    what has changed here since `backends snapshot good.json`
  backends diff good.json - --fail-on error    for CI: new or newer things are not failures
  backends diff node1.json node2.json --format markdown
  backends diff old/ new/ --only 'cud*' --ignore '*.found_by'
"""

import click

from mlbackends.audit.compare import check_globs, compare, narrowed, outcome_of
from mlbackends.audit.reports import name_of, reports_of
from mlbackends.model.difference import Difference, Kind
from mlbackends_cli import formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, format_option
from mlbackends_cli.output import write
from mlbackends_cli.report import differences
from mlbackends_cli.report.judgement import code, fail_on_option, write_outcome
from mlbackends_cli.terminal import Page, ProgressLine, page
from mlbackends_cli.text.plain import Group, Listing, one_line, without_commands, wrapped

_COLOURS = {Kind.ADDED: "green", Kind.REMOVED: "red", Kind.CHANGED: "yellow"}


@documented()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--only",
    metavar="GLOB",
    multiple=True,
    help="Compare only matching names, such as 'cpu.*' or cudnn; a name includes all names below it.",
)
@click.option(
    "--ignore",
    metavar="GLOB",
    multiple=True,
    help="Ignore matching names, and all names below them.",
)
@format_option("outcome", about="Output format; json has every value in full.")
@fail_on_option("note")
@OUTPUT
@COLOR
def command(
    before: str,
    after: str,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    form: str,
    fail_on: str,
    output: str,
    color: str,
) -> int:
    with ProgressLine() as progress:
        reports = reports_of(before, after, progress=progress)
    check_globs((*only, *ignore), *reports)
    difference = compare(*reports, names=(name_of(before), name_of(after)))
    difference = narrowed(difference, only, ignore)
    style = page(color, output)
    if form == "table":
        write(_printed(difference, style), output)
    elif formats.has(form, "difference", "record"):
        write(formats.text(form, "difference", difference, style), output)
    elif formats.has(form, "listing"):
        rows = []
        for cause in differences.worst_first(difference):
            change, name = cause.change, " also ".join(filter(None, differences.names(cause)))
            weight = f"{change.severity}: {change.why}" if change.why else str(change.severity)
            both = tuple(
                "; ".join(text for kind, text in differences.records(change) if kind is not unlike)
                for unlike in (Kind.ADDED, Kind.REMOVED)
            )
            values = both if any(both) else differences.values(change)
            rows.append((str(change.kind), name, *values, weight))
        columns = ("", "name", "before", "after", "weight")
        notes = tuple(differences.notes(difference))
        listing = Listing(columns, (Group("", tuple(rows)),), notes=notes)
        write(formats.text(form, "listing", listing, style), output)
    else:
        write_outcome(outcome_of(difference), form, output, style)
    return code(outcome_of(difference), fail_on=fail_on, strict=False)


def _printed(difference: Difference, page: Page) -> str:
    """Return a paragraph for each probe, and how many changes there are."""
    lines = []
    for part in differences.parts(difference):
        lines.append(page.styled(part.probe, "bold"))
        for cause in part.causes:
            change = cause.change
            name, others = differences.names(cause, part.probe)
            records = differences.records(change)
            text = "" if records else " → ".join(filter(None, differences.values(change)))
            worse = f" ({change.severity}: {change.why})" if change.why else ""
            lines += _marked(change.kind, f"{name}: {text}".removesuffix(": ") + worse, page)
            for kind, record in records:
                lines += _marked(kind, record, page, 6)
            if others:
                lines += wrapped(f"also {others}", page.width, " " * 6, " " * 6)
        for kind in Kind:
            packages = [
                f"{differences.names(cause)[0]} {'→'.join(filter(None, differences.values(cause.change)))}"
                for cause in part.packages
                if cause.change.kind is kind
            ]
            if packages:
                lines += _marked(kind, f"{len(packages)} {kind}: {', '.join(packages)}", page)
        lines.append("")
    for note in differences.notes(difference):
        lines += wrapped(one_line(note), page.width, "", "  ")
    return page.fitted(without_commands("\n".join(lines) + "\n", page.sign("·", ".")))


def _marked(kind: Kind, text: str, page: Page, indent: int = 2) -> list[str]:
    from mlbackends_cli.text.layout import wrapped as layout_wrapped

    first, *others = layout_wrapped(text, page.width - indent - 4, fold=page.terminal)
    mark = page.styled(differences.MARKS[kind], _COLOURS[kind])
    return [f"{' ' * indent}{mark} {first}", *(" " * (indent + 4) + other for other in others)]
