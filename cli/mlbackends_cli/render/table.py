"""The page for people: what is usable, what is here but not usable and why, what is not here."""

import io
import re
from typing import Any, cast

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device, Library, ProbeReport, Report
from mlbackends_cli import catalogue, verdict
from mlbackends_cli.listing import Listing
from mlbackends_cli.terminal import Page

_Row = tuple[list[str | Text], str | Text]
"""The short cells of a line, and the text behind them."""

_MARKS = {
    "usable": ("✓", "+", "green"),
    "loadable": ("◐", "~", "cyan"),
    "found": ("·", "-", "yellow"),
    "broken": ("✗", "x", "red"),
    "unknown": ("?", "?", "red"),
    "absent": (" ", " ", "dim"),
}
_OBEYED = (
    "\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"
    "|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_SHORT = 40
"""So long a reason may be, in characters, to be told again for each library."""
_NARROW = 24
"""Text that would get fewer columns than this begins on a line of its own."""
_MOST_WARNINGS = 10
_PLACE_OF_TITLE = "\ue000"
"""Stands for a title in a grid of rows; no text that is shown is this character alone."""


def report(report: Report, page: Page) -> str:
    """Return the overview, or every detail where the page asks for details."""
    parts = _details(report, page) if page.details else _overview(report, page)
    return _printed(Group(*parts), page)


def listing(listing: Listing, page: Page) -> str:
    """Return groups of rows below their titles; rows that differ from the usual stand out."""
    notes = [Text(note, style="dim") for note in listing.notes]
    widths = _widths(listing, page)
    body = _columns(listing, widths) if widths else _stacked(listing)
    return _titled(_printed(Group(body, *notes), page), listing, page)


def _titled(text: str, listing: Listing, page: Page) -> str:
    """Put titles into their places: they may be as wide as the page, and a cell only as its column."""
    titles = iter([group.title for group in listing.groups if group.title])
    return "".join(
        _printed(Text(next(titles, ""), style="bold"), page)
        if line.strip() == _PLACE_OF_TITLE
        else line
        for line in text.splitlines(keepends=True)
    )


def _widths(listing: Listing, page: Page) -> list[int]:
    """Return how wide each column is, so that lines break between words alone; [] where that fails."""
    most: list[int] = []
    least: list[int] = []
    for number, title in enumerate(listing.columns):
        indent = 2 if number == 0 and any(group.title for group in listing.groups) else 0
        cells = [title, *(row[number] for group in listing.groups for row in group.rows)]
        most.append(max(map(cell_len, cells)) + indent)
        longest = max(cell_len(word) for cell in cells for word in cell.split() or [""]) + indent
        # Half of a name is no name; of a path or a kernel's signature it must do.
        least.append(min(longest, _NARROW if number else page.width * 3 // 5))
    room = page.width - 2 * (len(most) - 1)
    if sum(least) > room:
        return []
    widths = list(most)
    while sum(widths) > room:
        at = max(range(len(widths)), key=lambda each: (widths[each] > least[each], widths[each]))
        widths[at] -= 1
    return widths


def _columns(listing: Listing, widths: list[int]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for width in widths:
        grid.add_column(overflow="fold", width=width)
    grid.add_row(*(Text(column, style="dim") for column in listing.columns))
    for at, group in enumerate(listing.groups):
        if group.title:
            grid.add_row(_PLACE_OF_TITLE)
        for number, row in enumerate(group.rows):
            style = "yellow" if (at, number) in listing.marked else ""
            first, *others = row
            head = Text(f"  {first}" if group.title else first, style=style)
            grid.add_row(head, *(Text(cell, style=style) for cell in others))
    return grid


def _stacked(listing: Listing) -> RenderableType:
    """Return each row as its first cell, and the others below it, for a page that is too narrow."""
    lines: list[RenderableType] = []
    for at, group in enumerate(listing.groups):
        lines += [Text(group.title, style="bold")] if group.title else []
        for number, (first, *others) in enumerate(group.rows):
            style = "yellow" if (at, number) in listing.marked else ""
            indent = 2 if group.title else 0
            titled = zip(listing.columns[1:], others, strict=True)
            below = " · ".join(f"{title} {cell}" for title, cell in titled if cell)
            lines.append(Padding(Text(first, style=style, overflow="fold"), (0, 0, 0, indent)))
            if below:
                said = Text(below, style=style, overflow="fold")
                lines.append(Padding(said, (0, 0, 0, indent + 2)))
    return Group(*lines)


def _printed(content: RenderableType, page: Page) -> str:
    file = io.StringIO()
    # Standard colours only: each terminal draws them so that they read on its own background.
    console = Console(
        file=file,
        width=page.width,
        force_terminal=page.color,
        color_system="standard" if page.color else None,
        no_color=not page.color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        safe_box=not page.unicode,
    )
    console.print(content)
    # A report may hold what a terminal obeys; of that only rich's own colours may reach one.
    text = re.sub(_OBEYED, "\ufffd", file.getvalue())
    text = "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n") + "\n"
    return text if page.unicode else _ascii(text)


def _ascii(text: str) -> str:
    for fancy, plain in (("·", "-"), ("…", "~"), ("×", "x"), ("→", "->"), ("—", "-")):
        text = text.replace(fancy, plain)
    return text


# ---- the overview --------------------------------------------------------------------------


def _overview(report: Report, page: Page) -> list[RenderableType]:
    groups = verdict.grouped(report)
    parts: list[RenderableType] = []
    _section(parts, "Machine", _machine(groups["machine"], page))
    accelerators = verdict.by_rung(groups["accelerator"])
    if groups["accelerator"]:
        _section(parts, "Accelerators", _accelerators(accelerators, page))
    _section(parts, "Libraries", _rows(verdict.by_rung(groups["library"]), page))
    _section(parts, "Packages", _packages(groups["framework"]))
    _section(parts, "Not here", _not_here(report))
    _section(parts, "Could not tell", _untold(report, page))
    _section(parts, "Look at", _warnings(report, page))
    parts.append(_footer(report, page))
    return parts


def _section(parts: list[RenderableType], title: str, content: RenderableType | None) -> None:
    if content is not None:
        parts += [Text(title, style="bold"), Padding(content, (0, 0, 0, 2))]


def _listed(rows: list[_Row], page: Page, indent: int = 2) -> RenderableType | None:
    """Return lines of short cells with a text behind them, which goes below them on a narrow page.

    indent: how far from the left the lines are printed.
    """
    if not rows:
        return None
    heads = [[_text(cell) for cell in cells] for cells, _ in rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(*heads, strict=True)]
    before = sum(width + 2 for width in widths if width)
    if page.width - indent - before >= _NARROW:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for _ in widths:
            grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for cells, (_, text) in zip(heads, rows, strict=True):
            grid.add_row(*cells, _text(text))
        return grid
    lines: list[RenderableType] = []
    for cells, (_, text) in zip(heads, rows, strict=True):
        head = Text("  ", overflow="fold").join(cell for cell in cells if cell.plain)
        said = _text(text)
        if head.cell_len + 2 + said.cell_len <= page.width - indent and "\n" not in said.plain:
            lines.append(Text("  ").join(part for part in (head, said) if part.plain))
            continue
        lines += [head] if head.plain else []
        lines.append(Padding(said, (0, 0, 0, 2)))
    return Group(*lines)


def _text(cell: str | Text) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell
    text.overflow = "fold"
    return text


def _machine(probes: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    rows: list[_Row] = []
    for name, probe in probes.items():
        line = verdict.why(probe) if probe.failure else catalogue.glance(name, probe)
        if line:
            rows.append(([name], line + _time(probe, page)))
    return _listed(rows, page)


def _accelerators(probes: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    if not probes:
        return Text("none found", style="dim")
    rows: list[_Row] = []
    for name, probe in probes.items():
        mark = _mark(probe, page)
        for count, device in verdict.alike(probe.devices):
            rows.append(([mark, name], verdict.device_line(count, device)))
            mark, name = Text(""), ""
        said = catalogue.glance(name, probe) if name else ""
        problem = verdict.why(probe)
        if said or problem or name:
            line = ": ".join(part for part in (said, problem) if part)
            line = line or probe.version or str(probe.presence)
            rows.append(([mark, name], line + _time(probe, page)))
    return _listed(rows, page)


def _rows(probes: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    rows: list[_Row] = []
    for names in _with_one_reason(probes, page):
        name, *others = names
        probe = probes[name]
        problem = verdict.why(probe)
        said = Text(problem or _place(name, probe))
        if len(probe.libraries) > 1 and not problem:
            said.append(f" · {len(probe.libraries)} files", style="dim")
        said.append(_time(probe, page), style="dim")
        rows.append(([_mark(probe, page), name, probe.version], said))
        if others:
            them = ", ".join(f"{other} {probes[other].version}".rstrip() for other in others)
            rows.append((["", "", ""], f"the same: {them}"))
    return _listed(rows, page)


def _with_one_reason(probes: dict[str, ProbeReport], page: Page) -> list[list[str]]:
    """Put the names together whose long reason is the same: the page shall fit a screen.

    A missing driver is one sentence for a dozen libraries.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, probe in probes.items():
        problem = verdict.why(probe)
        shared = len(problem) > _SHORT and not page.timing
        key = (verdict.state_of(probe), problem) if shared else (name,)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def _place(name: str, probe: ProbeReport) -> str:
    return catalogue.glance(name, probe) or verdict.where(probe)


def _packages(probes: dict[str, ProbeReport]) -> RenderableType | None:
    here = []
    for name, probe in probes.items():
        if probe.failure:
            here.append(f"{name} (could not tell)")
        elif verdict.is_here(probe):
            here.append(catalogue.glance(name, probe) or f"{name} {probe.version}".rstrip())
    return Text(" · ".join(here)) if here else None


def _not_here(report: Report) -> RenderableType | None:
    names = verdict.missing(report)
    return Text(", ".join(names), style="dim") if names else None


def _untold(report: Report, page: Page) -> RenderableType | None:
    return _listed([([name], why) for name, why in verdict.untold(report).items()], page)


def _warnings(report: Report, page: Page) -> RenderableType | None:
    told = verdict.warnings(report)
    style = "yellow" if page.color else ""
    listed = _listed(
        [([Text("!", style=style), name], one.message) for name, one in told[:_MOST_WARNINGS]], page
    )
    left = told[_MOST_WARNINGS:]
    if listed is None or not left:
        return listed
    names = " ".join(dict.fromkeys(name for name, _ in left))
    return Group(listed, Text(f"and {len(left)} more: backends info {names}"))


def _footer(report: Report, page: Page) -> Text:
    marks = [
        f"{_symbol(_MARKS[state], page)} {verdict.MEANINGS[state]}"
        for state in ("usable", "loadable", "found", "broken")
    ]
    took = f"   {report.duration_seconds:.2f} s" if page.timing else ""
    return Text("   ".join(marks) + took, style="dim")


# ---- everything about the probes that were named -------------------------------------------


def _details(report: Report, page: Page) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for name, probe in report.probes.items():
        if parts:
            parts.append(Text(""))
        parts.append(_headline(name, probe, page))
        facts = {key: value for key, value in probe.facts.items() if not verdict.is_table(value)}
        rows = _named(facts, page)
        for reason in verdict.own_reasons(probe) if not probe.libraries else ():
            rows.append(([_dim("because", page)], _reason(reason)))
        for warning in probe.warnings:
            rows.append(([_dim("look at", page)], _reason(warning)))
        if listed := _listed(rows, page):
            parts.append(Padding(listed, (0, 0, 0, 2)))
        for fact, value in probe.facts.items():
            if verdict.is_table(value):
                records = cast("list[dict[str, Any]]", value)
                parts.append(Padding(_records(fact, records, page), (0, 0, 0, 2)))
        parts += [Padding(_device(device, page), (0, 0, 0, 2)) for device in probe.devices]
        parts += [Padding(_library(library, page), (0, 0, 0, 2)) for library in probe.libraries]
    return parts


def _headline(name: str, probe: ProbeReport, page: Page) -> Text:
    title = Text.assemble(_mark(probe, page), " ", (catalogue.label(name), "bold"))
    if probe.version:
        title.append(f" {probe.version}")
    untold = probe.failure is None and verdict.state_of(probe) == "unknown"
    title.append(
        f"  {verdict.MEANINGS['unknown'] if untold else probe.presence or verdict.why(probe)}"
    )
    title.append(_time(probe, page), style="dim")
    title.append(f"  {catalogue.meaning(name)}", style="dim")
    return title


def _records(fact: str, rows: list[dict[str, Any]], page: Page) -> RenderableType:
    """Return a list of records as a table where it fits, else one record below the other."""
    columns = verdict.columns(rows)
    cells = [[catalogue.amount(c, row[c]) if c in row else "" for c in columns] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths) + 2 * len(widths) + 2 > page.width or any(
        "\n" in c for row in cells for c in row
    ):
        return _one_by_one(fact, rows, page)
    table = Table(title=fact, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(Text(column))
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _one_by_one(fact: str, rows: list[dict[str, Any]], page: Page) -> RenderableType:
    parts: list[RenderableType] = [Text(fact, style="italic")]
    for row in rows:
        first: list[str | Text] = ["-" if not page.unicode else "•"]
        listed: list[_Row] = []
        for cells, text in _named(row, page):
            listed.append(([*first, *cells], text))
            first = [""]
        parts.append(_listed(listed, page) or Text(""))
    return Group(*parts)


def _named(told: dict[str, Any], page: Page) -> list[_Row]:
    return [([_dim(name, page)], catalogue.amount(name, value)) for name, value in told.items()]


def _dim(name: str, page: Page) -> Text:
    return Text(name, style="dim" if page.color else "")


def _device(device: Device, page: Page) -> RenderableType:
    title = f"{device.kind} {device.index}  {device.name}"
    return _known(_mark(device, page), title, verdict.device_rows(device), device.reasons, page)


def _library(library: Library, page: Page) -> RenderableType:
    told = {"presence": str(library.presence), **verdict.library_rows(library)}
    return _known(_mark(library, page), library.path, told, library.reasons, page)


def _known(
    mark: Text,
    title: str,
    told: dict[str, object],
    reasons: tuple[Reason, ...],
    page: Page,
) -> RenderableType:
    # Two columns, so that a path without a place to break begins beside its mark.
    head = Table.grid(padding=(0, 1, 0, 0))
    head.add_column(no_wrap=True)
    head.add_column(overflow="fold")
    head.add_row(mark, Text(title))
    rows = _named(told, page)
    rows += [([_dim("because", page)], _reason(reason)) for reason in reasons]
    listed = _listed(rows, page, indent=6)
    return Group(head, Padding(listed, (0, 0, 0, 4))) if listed else head


# ---- words and marks -------------------------------------------------------------------------


def _mark(thing: ProbeReport | Device | Library, page: Page) -> Text:
    mark = _MARKS[verdict.state_of(thing)]
    return Text(_symbol(mark, page), style=mark[2] if page.color else "")


def _symbol(mark: tuple[str, str, str], page: Page) -> str:
    return mark[0] if page.unicode else mark[1]


def _reason(reason: Reason) -> Text:
    text = Text(f"{reason.message} [{reason.code}]")
    if reason.hint:
        text.append(f"\n→ {reason.hint}", style="italic")
    return text


def _time(probe: ProbeReport, page: Page) -> str:
    return f"  {probe.duration_seconds * 1000:.1f} ms" if page.timing else ""
