"""A difference for people: a paragraph for each change on a terminal, a row of a table in Markdown."""

import textwrap

from mlbackends.model.difference import Change, Difference, Kind
from mlbackends.model.records import FactValue
from mlbackends_cli import catalogue
from mlbackends_cli.listing import Group, Listing
from mlbackends_cli.plain import one_line, without_commands
from mlbackends_cli.terminal import Page

_MOST_CHARACTERS = 160
_MARKS = {Kind.ADDED: "+", Kind.REMOVED: "-", Kind.CHANGED: "~"}
_COLORS = {Kind.ADDED: "32", Kind.REMOVED: "31", Kind.CHANGED: "33"}
_INDENT = "      "


def printed(difference: Difference, page: Page) -> str:
    """Return the changes below the probe's name that they belong to, and how many there are."""
    lines = []
    for probe, changes in _groups(difference).items():
        lines.append(f"\033[1m{probe}\033[0m" if page.color else probe)
        for change in changes:
            lines += _paragraph(change, page)
        lines.append("")
    for note in _notes(difference):
        lines += _wrapped(one_line(note), page, "", "  ")
    text = without_commands("\n".join(lines) + "\n", "·" if page.unicode else ".")
    return text if page.unicode else text.replace("→", "->").encode("ascii", "replace").decode()


def _paragraph(change: Change, page: Page) -> list[str]:
    name, before, after = _row(change)
    said = f"{before} → {after}" if before and after else before or after
    lines = _wrapped(f"{name[2:]}: {said}", page, _INDENT[2:], _INDENT)
    mark = name[0]
    mark = f"\033[{_COLORS[change.kind]}m{mark}\033[0m" if page.color else mark
    return [f"  {mark} {lines[0].lstrip()}", *lines[1:]]


def _wrapped(text: str, page: Page, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text,
        page.width,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,  # half of a path is no path
    )


def listing(difference: Difference) -> Listing:
    """Return the changes as rows, and below them how many there are."""
    rows = []
    for change in difference.changes:
        _, before, after = _row(change)
        rows.append((str(change.kind), one_line(change.name), before, after))
    columns = ("", "name", "before", "after")
    return Listing(columns, (Group("", tuple(rows)),), notes=tuple(_notes(difference)))


def _groups(difference: Difference) -> dict[str, list[Change]]:
    groups: dict[str, list[Change]] = {}
    for change in difference.changes:
        groups.setdefault(change.name.partition(".")[0], []).append(change)
    return groups


def _notes(difference: Difference) -> list[str]:
    names = one_line(difference.before.name), one_line(difference.after.name)
    counts = [
        f"{count} {kind}"
        for kind in Kind
        if (count := sum(change.kind is kind for change in difference.changes))
    ]
    told = ", ".join(counts) if counts else "they do not differ"
    return [f"from {names[0]} to {names[1]}: {told}", *difference.notes]


def _row(change: Change) -> tuple[str, str, str]:
    name = change.name.partition(".")[2]
    last = name.rpartition(".")[2]
    cells = (_cell(last, value) for value in (change.before, change.after))
    return f"{_MARKS[change.kind]} {one_line(name)}", *cells  # type: ignore[return-value]


def _cell(name: str, value: FactValue | None) -> str:
    """Return a value with its unit; a long one is cut, since --format json has it whole."""
    if value is None:
        return ""
    text = one_line(catalogue.amount(name, value))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
