"""A difference for people, what became worse first: by probe and cause, and as an HTML page."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlbackends.audit.causes import Cause, Record, causes, joined, text_of
from mlbackends.audit.causes import records as records_of
from mlbackends.model.audit import Severity
from mlbackends.model.difference import Change, Difference, Kind
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
from mlbackends_cli.text.plain import amount, one_line

MARKS = {Kind.ADDED: "+", Kind.REMOVED: "-", Kind.CHANGED: "~"}
_PACKAGES = "packages.distributions."
_MOST_CHARACTERS = 160


class Part(NamedTuple):
    """What differs in a probe, the worst first. packages: those that are notes."""

    probe: str
    causes: list[Cause]
    packages: list[Cause]


def parts(difference: Difference) -> list[Part]:
    """Return each probe that differs, that with the worst change first."""
    found: dict[str, Part] = {}
    for cause in worst_first(difference):
        probe = cause.change.name.partition(".")[0]
        part = found.setdefault(probe, Part(probe, [], []))
        (part.packages if _is_folded(cause.change) else part.causes).append(cause)
    return list(found.values())


def _is_folded(change: Change) -> bool:
    return change.severity is Severity.NOTE and change.name.startswith(_PACKAGES)


def worst_first(difference: Difference) -> list[Cause]:
    """Return the changes by cause and severity, those of one severity in their order."""
    return sorted(causes(difference.changes), key=lambda each: -each.change.severity.level)


def names(cause: Cause, probe: str = "") -> tuple[str, str]:
    """Return what changed, without the name of the probe, and what changed with it, on a line each.

    Of a package that is a note, that is its name alone.
    """
    ours = _PACKAGES if _is_folded(cause.change) else f"{probe}." if probe else ""
    first, *others = joined(
        one_line(each.removeprefix(ours)) for each in (cause.change.name, *cause.others)
    )
    return first, ", ".join(others)


def values(change: Change) -> tuple[str, str]:
    """Return both values with their units; a long one is cut, since --format json has it in full."""
    if len(found := records_of(change)) == 1:
        text = _text(found[0])
        return (text, "") if change.kind is Kind.REMOVED else ("", text)
    name = change.name.rpartition(".")[2]
    before, after = (
        "" if value is None else one_line(amount(name, value))
        for value in (change.before, change.after)
    )
    return _cut(before), _cut(after)


def records(change: Change) -> list[tuple[Kind, str]]:
    """Return what changed in a list, a line for each record; [] if it is not a list or has one record."""
    found = records_of(change)
    return [(one.kind, _text(one)) for one in found] if len(found) > 1 else []


def _text(record: Record) -> str:
    return _cut(one_line(text_of(record, amount)))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def counts(difference: Difference) -> Iterator[tuple[int, str]]:
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


def notes(difference: Difference) -> list[str]:
    """Return what was compared, the number of differences, and what was not compared."""
    numbers = ", ".join(f"{count} {word}" for count, word in counts(difference))
    names = f"from {one_line(difference.before.name)} to {one_line(difference.after.name)}"
    return [f"{names}: {numbers or 'no differences'}", *difference.notes]


def difference_page(difference: Difference, *, is_open: bool) -> str:
    """Return the page. is_open: whether what did not become worse is unfolded."""
    before, after = difference.before, difference.after
    found = parts(difference)
    worse = _changes_table([cause for part in found for cause in part.causes if cause.change.why])
    fine = "Nothing became worse." if found else "There are no differences."
    sections = []
    for part in found:  # the notes of a probe, folded; packages on a line each
        notes = [cause for cause in part.causes if not cause.change.why]
        kinds = [each.change.kind for each in (*notes, *part.packages)]
        shown = (f"{MARKS[kind]} {kinds.count(kind)} {kind}" for kind in Kind if kind in kinds)
        title = [words("strong", part.probe), words("span", " · ".join(shown), "dim")]
        tables = _changes_table(notes, part.probe), _changes_table(part.packages)
        sections += [folded(title, *tables, is_open=is_open)] if kinds else []
    numbers = [(f"{count:,}", word) for count, word in counts(difference)]
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
        change, (name, others) = cause.change, names(cause, probe)
        title = element("code", breakable(name))
        cells = [element("td", breakable(value), kind="value") for value in values(change)]
        if lines := [
            f"{words('span', MARKS[kind], f'kind {kind}')} {breakable(text)}"
            for kind, text in records(change)
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
