"""Tell what was added, removed and changed from A to B, by dotted name.

A and B are each a report that `backends info --format json` or `backends snapshot` wrote, a recorded
machine, or - for the live one. What differs between two looks at one machine is left out: free
memory, clocks, host names, serial numbers, and the folder in which the environment lies. Exit 1
where they differ.

Examples:
  backends diff good.json -                    what has changed here since `backends snapshot good.json`
  backends diff node1.json node2.json --format markdown
  backends diff old/ new/ --only 'cud*' --ignore '*.found_by'
"""

import click

from mlbackends.model.difference import Change, Difference
from mlbackends_cli import exits, formats
from mlbackends_cli.judgement import write_outcome
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, format_option
from mlbackends_cli.output import write
from mlbackends_cli.terminal import Page, ProgressLine, page
from mlbackends_cli.text.plain import amount, one_line, without_commands
from mlbackends_cli.text.prose import Group, Listing, wrapped

_MOST_CHARACTERS = 160
_MARKS = {"added": ("+", "32"), "removed": ("-", "31"), "changed": ("~", "33")}


@documented()
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
@format_option("outcome", about="How to write it; json has every value whole.")
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
    from mlbackends.audit.compare import check_globs, compare, kept, outcome_of
    from mlbackends.audit.reports import name_of, reports_of

    with ProgressLine() as progress:
        reports = reports_of(before, after, progress=progress)
    check_globs((*only, *ignore), *reports)
    difference = compare(*reports, names=(name_of(before), name_of(after)))
    difference = kept(difference, only, ignore)
    style = page(color, output)
    if form == "table":
        write(_printed(difference, style), output)
    elif formats.has(form, "record"):
        write(formats.text(form, "record", difference, style), output)
    elif formats.has(form, "listing"):
        rows = [(str(each.kind), one_line(each.name), *_cells(each)) for each in difference.changes]
        columns = ("", "name", "before", "after")
        listing = Listing(columns, (Group("", tuple(rows)),), notes=tuple(_notes(difference)))
        write(formats.text(form, "listing", listing, style), output)
    else:
        write_outcome(outcome_of(difference), form, output, style)
    return exits.NO if difference.changes else exits.YES


def _printed(difference: Difference, page: Page) -> str:
    """Return a paragraph for each change below the probe that it belongs to, and how many there are."""
    lines = []
    groups: dict[str, list[Change]] = {}
    for change in difference.changes:
        groups.setdefault(change.name.partition(".")[0], []).append(change)
    for probe, changes in groups.items():
        lines.append(page.styled(probe, "1"))
        for change in changes:
            name = one_line(change.name.partition(".")[2])
            text = " → ".join(filter(None, _cells(change)))
            first, *others = wrapped(f"{name}: {text}", page.width, " " * 4, " " * 6)
            lines += [f"  {page.styled(*_MARKS[change.kind])} {first.lstrip()}", *others]
        lines.append("")
    for note in _notes(difference):
        lines += wrapped(one_line(note), page.width, "", "  ")
    return page.fitted(without_commands("\n".join(lines) + "\n", page.sign("·", ".")))


def _notes(difference: Difference) -> list[str]:
    kinds = [str(change.kind) for change in difference.changes]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in _MARKS if kind in kinds)
    names = f"from {one_line(difference.before.name)} to {one_line(difference.after.name)}"
    return [f"{names}: {counts or 'they do not differ'}", *difference.notes]


def _cells(change: Change) -> tuple[str, str]:
    """Return both values with their units; a long one is cut, since --format json has it whole."""
    name = change.name.rpartition(".")[2]
    before, after = (
        "" if value is None else one_line(amount(name, value))
        for value in (change.before, change.after)
    )
    return _cut(before), _cut(after)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
