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
  backends diff --python old/bin/python --python new/bin/python    two environments
  backends diff node1.json node2.json --format markdown
  backends diff old/ new/ --only 'cud*' --ignore '*.found_by'
  backends diff good.json - --expected expected.toml    what you know of does not count
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from mlbackends.audit.causes import Cause, Record, causes, joined, text_of
from mlbackends.audit.causes import records as records_of
from mlbackends.audit.compare import ANOTHER_ENVIRONMENT, check_globs, compare, narrowed, outcome_of
from mlbackends.audit.reports import LIVE, environments, name_of, reports_of
from mlbackends.base.patterns import pattern
from mlbackends.model.audit import Severity
from mlbackends.model.difference import Change, Difference, Kind
from mlbackends_cli import formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, format_option, option
from mlbackends_cli.output import log, write
from mlbackends_cli.report.judgement import EXPECTED, accepting, code, fail_on_option, write_outcome
from mlbackends_cli.terminal import Page, ProgressLine, page
from mlbackends_cli.text.elements import (
    breakable,
    document,
    element,
    escaped,
    folded,
    footer,
    header,
    items,
    section,
    severity_badge,
    table,
    words,
)
from mlbackends_cli.text.plain import Group, Listing, amount, one_line, without_commands, wrapped

_VERSION = pattern(r"(?:^|[._])(?:version|release)$|^packages\.distributions\.")
_COLOURS = {Kind.ADDED: "green", Kind.REMOVED: "red", Kind.CHANGED: "yellow"}


@documented()
@click.argument("before", metavar="A", required=False, default="")
@click.argument("after", metavar="B", required=False, default="")
@option("--python pythons EXE", "diff python", many=True)
@option("--only GLOB", "only", many=True)
@option("--ignore GLOB", "Ignore matching names, and all names below them.", many=True)
@EXPECTED
@format_option("outcome", about="Output format; json has every value in full.")
@fail_on_option("note")
@OUTPUT
@COLOR
def command(
    before: str,
    after: str,
    pythons: tuple[str, ...],
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    expected: str | None,
    form: str,
    fail_on: str,
    output: str,
    color: str,
) -> int:
    if not after and not (pythons and not before):
        raise click.UsageError(f"`backends diff` needs {'B' if before else 'A and B'}")
    before, after = before or LIVE, after or LIVE
    accepted = accepting(expected, after, "fact") if expected else None
    with ProgressLine() as progress:
        reports = reports_of(before, after, pythons=pythons, progress=progress)
    check_globs((*only, *ignore), *reports)
    first, second = environments(before, after, pythons)
    difference = compare(*reports, names=(name_of(before, first), name_of(after, second)))
    for note in difference.notes:
        if note.startswith(ANOTHER_ENVIRONMENT) and not pythons:
            hint = "; --python EXE compares another one" if LIVE in (before, after) else ""
            log(f"warning: {note}{hint}")
    difference = narrowed(difference, only, ignore)
    outcome = outcome_of(difference)
    if accepted:
        from mlbackends.fleet.expected import of_one_node  # ClusterShell

        difference, outcome = of_one_node(difference, *accepted)
    style = page(color, output)
    own = {"table": _printed, "html": difference_page}
    if form in own or formats.has(form, "record"):
        write(formats.text_of(form, difference, style, **own), output)
    elif formats.has(form, "listing"):
        rows = []
        for cause in _worst_first(difference):
            change, name = cause.change, " also ".join(filter(None, _names(cause)))
            weight = f"{change.severity}: {change.why}" if change.why else str(change.severity)
            both = tuple(
                "; ".join(text for kind, text in _records(change) if kind is not unlike)
                for unlike in (Kind.ADDED, Kind.REMOVED)
            )
            values = both if any(both) else _values(change)
            rows.append((str(change.kind), name, *values, weight))
        columns = ("", "name", "before", "after", "weight")
        listing = Listing(columns, (Group("", tuple(rows)),), notes=tuple(_notes(difference)))
        write(formats.text(form, "listing", listing, style), output)
    else:
        write_outcome(outcome, form, output, style)
    return code(outcome_of(difference), fail_on=fail_on, strict=False)


def _printed(difference: Difference, page: Page) -> str:
    """Return a paragraph for each probe, and how many changes there are."""
    lines = []
    for part in _parts(difference):
        lines.append(page.styled(part.probe, "bold"))
        for cause in part.causes:
            change = cause.change
            name, others = _names(cause, part.probe)
            records = _records(change)
            text = "" if records else " → ".join(filter(None, _values(change)))
            worse = f" ({change.severity}: {change.why})" if change.why else ""
            lines += _marked(change.kind, f"{name}: {text}".removesuffix(": ") + worse, page)
            for kind, record in records:
                lines += _marked(kind, record, page, 6)
            if others:
                lines += wrapped(f"also {others}", page.width, " " * 6, " " * 6)
        for kind in Kind:
            packages = [
                f"{_names(cause)[0]} {'→'.join(filter(None, _values(cause.change)))}"
                for cause in part.packages
                if cause.change.kind is kind
            ]
            if packages:
                lines += _marked(kind, f"{len(packages)} {kind}: {', '.join(packages)}", page)
        lines.append("")
    for note in _notes(difference):
        lines += wrapped(one_line(note), page.width, "", "  ")
    return page.fitted(without_commands("\n".join(lines) + "\n", page.sign("·", ".")))


def _marked(kind: Kind, text: str, page: Page, indent: int = 2) -> list[str]:
    from mlbackends_cli.text.layout import wrapped as layout_wrapped

    first, *others = layout_wrapped(text, page.width - indent - 4, fold=page.terminal)
    mark = page.styled(MARKS[kind], _COLOURS[kind])
    return [f"{' ' * indent}{mark} {first}", *(" " * (indent + 4) + other for other in others)]


MARKS = {Kind.ADDED: "+", Kind.REMOVED: "-", Kind.CHANGED: "~"}
_PACKAGES = "packages.distributions."
_MOST_CHARACTERS = 160


class Part(NamedTuple):
    """What differs in a probe or in versions, the worst first. packages: those that are notes."""

    probe: str
    causes: list[Cause]
    packages: list[Cause]


def _parts(difference: Difference) -> list[Part]:
    """Return the versions that changed, and each probe that differs otherwise, the worst change first."""
    versions = Part("versions", [], [])
    found: dict[str, Part] = {}
    for cause in _worst_first(difference):
        change, probe = cause.change, cause.change.name.partition(".")[0]
        is_version = change.kind is Kind.CHANGED and _VERSION.search(change.name)
        part = versions if is_version else found.setdefault(probe, Part(probe, [], []))
        (part.packages if _is_folded(change) else part.causes).append(cause)
    return [versions, *found.values()] if any(versions[1:]) else list(found.values())


def _is_folded(change: Change) -> bool:
    return change.severity is Severity.NOTE and change.name.startswith(_PACKAGES)


def _worst_first(difference: Difference) -> list[Cause]:
    """Return the changes by cause and severity, those of one severity in their order."""
    return sorted(causes(difference.changes), key=lambda each: -each.change.severity.level)


def _names(cause: Cause, probe: str = "") -> tuple[str, str]:
    """Return what changed, without the name of the probe, and what changed with it, on a line each.

    Of a package that is a note, that is its name alone.
    """
    ours = _PACKAGES if _is_folded(cause.change) else f"{probe}." if probe else ""
    first, *others = joined(one_line(name.removeprefix(ours)) for name in (cause.change.name, *cause.others))
    return first, ", ".join(others)


def _values(change: Change) -> tuple[str, str]:
    """Return both values with their units; a long one is cut, since --format json has it in full."""
    if len(found := records_of(change)) == 1:
        text = _text(found[0])
        return (text, "") if change.kind is Kind.REMOVED else ("", text)
    name = change.name.rpartition(".")[2]
    before, after = (
        "" if value is None else one_line(amount(name, value)) for value in (change.before, change.after)
    )
    return _cut(before), _cut(after)


def _records(change: Change) -> list[tuple[Kind, str]]:
    """Return what changed in a list, a line for each record; [] if it is not a list or has one record."""
    found = records_of(change)
    return [(record.kind, _text(record)) for record in found] if len(found) > 1 else []


def _text(record: Record) -> str:
    return _cut(one_line(text_of(record, amount)))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _counts(difference: Difference) -> Iterator[tuple[int, str]]:
    """Yield the number of changes by severity, then by kind, without zeros."""
    changes = [cause.change for cause in causes(difference.changes)]
    severities = [change.severity for change in changes]
    kinds = [change.kind for change in changes]
    for severity in reversed(Severity):
        if count := severities.count(severity):
            yield count, f"{severity}{'s' * (count != 1)}"
    for kind in Kind:
        if count := kinds.count(kind):
            yield count, str(kind)


def _notes(difference: Difference) -> list[str]:
    """Return what was compared, the number of differences, and what was not compared."""
    numbers = ", ".join(f"{count} {word}" for count, word in _counts(difference))
    names = f"from {one_line(difference.before.name)} to {one_line(difference.after.name)}"
    return [f"{names}: {numbers or 'no differences'}", *difference.notes]


def difference_page(difference: Difference, page: Page) -> str:
    """Return the page; what did not become worse is folded unless the page asks for details."""
    before, after = difference.before, difference.after
    found = _parts(difference)
    worse = _changes_table([cause for cause in _worst_first(difference) if cause.change.why])
    fine = "Nothing became worse." if found else "There are no differences."
    sections = []
    for part in found:  # the notes of a probe, folded; packages on a line each
        notes = [cause for cause in part.causes if not cause.change.why]
        kinds = [note.change.kind for note in (*notes, *part.packages)]
        shown = (f"{MARKS[kind]} {kinds.count(kind)} {kind}" for kind in Kind if kind in kinds)
        title = [words("strong", part.probe), words("span", " · ".join(shown), "dim")]
        tables = _changes_table(notes, part.probe), _changes_table(part.packages)
        sections += [folded(title, *tables, is_open=page.details)] if kinds else []
    numbers = [(f"{count:,}", word) for count, word in _counts(difference)]
    body = [
        header("What changed", (f"from {before.name} to {after.name}", after.created), numbers),
        "<main>\n",
        section("worse", "What became worse", worse or words("p", fine, "fine")),
        section("otherwise", "Other changes", *sections),
        section("not-compared", "Not compared", items("", *map(escaped, difference.notes))),
        "</main>\n",
        footer({"made by": difference.tool, "schema": difference.schema}),
    ]
    return document("What changed", "".join(body), ("page", "findings"))


def _changes_table(causes: Sequence[Cause], probe: str = "") -> str:
    """Return a table of changes; without the name of the probe, if one is given."""
    is_worse = any(cause.change.why for cause in causes)
    rows = []
    for cause in causes:
        change, (name, others) = cause.change, _names(cause, probe)
        title = element("code", breakable(name))
        cells = [element("td", breakable(value), kind="value") for value in _values(change)]
        if lines := [
            f"{words('span', MARKS[kind], f'kind {kind}')} {breakable(text)}"
            for kind, text in _records(change)
        ]:  # what changed record by record fills both
            cells = [element("td", items("records", *lines), kind="value", colspan="2")]
        if others:
            title += element("div", f"also {breakable(others)}", kind="dim")
        rows.append(
            [
                element("td", severity_badge(change.severity)) if is_worse else "",
                words("td", f"{MARKS[change.kind]} {change.kind}", f"kind {change.kind}"),
                element("th", title, scope="row"),
                *cells,
                words("td", change.why, "why") if is_worse else "",
            ]
        )
    heads = ("how bad", "change", "what", "before", "after", "why it is worse")
    return table(heads if is_worse else heads[1:-1], rows, "changes stack")
