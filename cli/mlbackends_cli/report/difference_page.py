"""The page of a difference: what became worse, and the other changes by probe, folded."""

from collections.abc import Sequence

from mlbackends.audit.causes import Cause
from mlbackends.model.difference import Change, Difference, Kind
from mlbackends_cli.report import differences
from mlbackends_cli.report.differences import Part
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


def difference_page(difference: Difference, *, is_open: bool) -> str:
    """Return the page. is_open: whether what did not become worse is unfolded."""
    before, after = difference.before, difference.after
    parts = differences.parts(difference)
    worse = _table([cause for part in parts for cause in part.causes if cause.change.why])
    fine = "Nothing became worse." if parts else "There are no differences."
    sections = [_notes(part, is_open=is_open) for part in parts]
    numbers = [(f"{count:,}", word) for count, word in differences.counts(difference)]
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


def _notes(part: Part, *, is_open: bool) -> str:
    """Return the notes of a probe, folded; packages on a line each."""
    notes = [cause for cause in part.causes if not cause.change.why]
    kinds = [each.change.kind for each in (*notes, *part.packages)]
    if not kinds:
        return ""
    counts = (
        f"{differences.MARKS[kind]} {kinds.count(kind)} {kind}" for kind in Kind if kind in kinds
    )
    title = [words("strong", part.probe), words("span", " · ".join(counts), "dim")]
    return folded(title, _table(notes, part.probe), _table(part.packages), is_open=is_open)


def _table(causes: Sequence[Cause], probe: str = "") -> str:
    """Return a table of changes; without the name of the probe, if one is given."""
    is_worse = any(cause.change.why for cause in causes)
    rows = []
    for cause in causes:
        change, (name, others) = cause.change, differences.names(cause, probe)
        title = element("code", breakable(name))
        if others:
            title += element("div", f"also {breakable(others)}", kind="dim")
        rows.append(
            [
                element("td", severity_badge(change.severity)) if is_worse else "",
                words(
                    "td", f"{differences.MARKS[change.kind]} {change.kind}", f"kind {change.kind}"
                ),
                element("th", title, scope="row"),
                *_values(change),
                words("td", change.why, "why") if is_worse else "",
            ]
        )
    heads = ("how bad", "change", "what", "before", "after", "why it is worse")
    return table(heads if is_worse else heads[1:-1], rows, "changes stack")


def _values(change: Change) -> list[str]:
    """Return the cells of both values; what changed record by record fills both."""
    records = [
        f"{words('span', differences.MARKS[kind], f'kind {kind}')} {breakable(text)}"
        for kind, text in differences.records(change)
    ]
    if records:
        return [element("td", items("records", *records), kind="value", colspan="2")]
    return [element("td", breakable(value), kind="value") for value in differences.values(change)]
