"""The page of a difference: what became worse, probe by probe, and folded below it what is otherwise."""

from collections.abc import Sequence
from operator import attrgetter

from mlbackends.model.difference import Change, Difference, Kind
from mlbackends_cli.text import differences
from mlbackends_cli.text.differences import Part
from mlbackends_cli.web.elements import (
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
    worse = _table([each for part in parts for each in part.changes if each.why])
    fine = "Nothing became worse." if parts else "The two do not differ."
    others = [_others(part, is_open=is_open) for part in parts]
    numbers = [(f"{count:,}", word) for count, word in differences.counts(difference)]
    body = [
        header("What changed", (f"from {before.name} to {after.name}", after.created), numbers),
        "<main>\n",
        section("worse", "What became worse", worse or words("p", fine, "fine")),
        section("otherwise", "What is new or otherwise", *others),
        section("not-compared", "Not compared", items("", *map(escaped, difference.notes))),
        "</main>\n",
        footer({"made by": difference.tool, "schema": difference.schema}),
    ]
    return document("What changed", "".join(body), ("page", "findings"))


def _others(part: Part, *, is_open: bool) -> str:
    """Return the notes of a probe, folded; packages on a line each."""
    notes = [each for each in part.changes if not each.why]
    kinds = [each.kind for each in (*notes, *part.packages)]
    if not kinds:
        return ""
    counts = (
        f"{differences.MARKS[kind]} {kinds.count(kind)} {kind}" for kind in Kind if kind in kinds
    )
    title = [words("strong", part.probe), words("span", " · ".join(counts), "dim")]
    return folded(title, _table(notes), _table(part.packages), is_open=is_open)


def _table(changes: Sequence[Change]) -> str:
    is_worse = any(change.why for change in changes)
    name = attrgetter("name") if is_worse else differences.name_in_probe
    rows = [
        [
            element("td", severity_badge(change.severity)) if is_worse else "",
            words("td", f"{differences.MARKS[change.kind]} {change.kind}", f"kind {change.kind}"),
            element("th", element("code", breakable(name(change))), scope="row"),
            *(
                element("td", breakable(value), kind="value")
                for value in differences.values(change)
            ),
            words("td", change.why, "why") if is_worse else "",
        ]
        for change in changes
    ]
    heads = ("how bad", "change", "what", "before", "after", "why it is worse")
    return table(heads if is_worse else heads[1:-1], rows, "changes stack")
