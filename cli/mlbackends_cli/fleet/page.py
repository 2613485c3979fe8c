"""A fleet as an HTML page and as one picture: a bar for each kind of nodes, and one for each deviation."""

from msgspec.structs import replace

from mlbackends.base.errors import counted
from mlbackends.model.fleet import Fleet
from mlbackends_cli.charts.svg import Drawing
from mlbackends_cli.fleet import text as fleets
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.elements import (
    breakable,
    document,
    element,
    escaped,
    footer,
    header,
    items,
    scrolled,
    section,
    table,
)


def fleet_page(fleet: Fleet, page: Page) -> str:
    """Return the page; every node is on it."""
    silent = sum(len(group.nodes) for group in fleet.silent)
    deviating = len(
        {node for kind in fleet.kinds for deviation in kind.deviations for node in deviation.nodes}
    )
    numbers = [(f"{fleet.reported:,}", "reported"), (f"{silent:,}", "without a report")]
    numbers += [(f"{deviating:,}", "deviate"), (f"{len(fleet.configurations):,}", "configurations")]
    facts = sum(len(split.facts) for kind in fleet.kinds for split in kind.splits)
    numbers += [(f"{facts:,}", "facts without a majority")] if facts else []
    parts, notes = fleets.fleet_parts(fleet, replace(page, details=True))
    title = fleets.headline(fleet)
    sections = [
        section(
            f"part-{at}",
            heading if at else "Reports and hazards",
            table(
                ("what", "which nodes, and why"),
                [
                    [
                        element("th", escaped(word), scope="row") if word else element("td"),
                        element("td", "<br>".join(map(breakable, lines))),
                    ]
                    for word, lines in rows
                ],
                "changes",
            ),
        )
        for at, (heading, rows) in enumerate(parts)
    ]
    body = [
        header("Fleet", (title,), numbers),
        "<main>\n",
        section("picture", "All of it", scrolled(sheet(fleet), "The groups of nodes by size")),
        *sections,
        section("notes", "Notes", items("", *map(escaped, notes))),
        "</main>\n",
        footer({"made by": fleet.tool, "schema": fleet.schema}),
    ]
    return document(title, "".join(body), ("page", "findings", "../charts/charts"))


_WIDTH, _EDGE = 960.0, 14.0
#: The length of the bar for all nodes, the height of a row, and the minimum length of a bar.
_BAR, _ROW, _LEAST = 200.0, 42.0, 3.0
_MOST_KINDS, _MOST_ROWS = 6, 8
_SILENT = "series s6"
_COLOURS = {"warning": "series s4", "note": "other", "missing": "other"}


class _Rows:
    """Draws rows below one another: a bar, the number of nodes, a description and the names."""

    def __init__(self, drawing: Drawing, top: float, total: int) -> None:
        self.top = top
        self._drawing, self._total = drawing, max(1, total)

    def text(self, text: str, size: str = "axis") -> None:
        """Write a sentence, or a heading, which is "bold"."""
        foot, height = (20, 30) if size == "bold" else (13, 22)
        self._drawing.words(_EDGE, self.top + foot, text, _WIDTH - 2 * _EDGE, size)
        self.top += height

    def row(self, count: int, kind: str, text: str, nodes: str) -> None:
        """Draw one row."""
        draw, top = self._drawing, self.top
        draw.box(_EDGE, top + 4, _BAR, 16, "track")
        draw.box(_EDGE, top + 4, max(_LEAST, _BAR * count / self._total), 16, kind)
        left = _EDGE + _BAR + 10
        draw.words(left, top + 17, f"{count:,}", 60, "bold")
        draw.words(left + 62, top + 13, text, _WIDTH - left - 62 - _EDGE, "axis")
        draw.words(left + 62, top + 30, nodes, _WIDTH - left - 62 - _EDGE, "axis")
        self.top += _ROW if nodes else _ROW - 14


def sheet(fleet: Fleet, style: str = "") -> str:
    """Return the picture; style: the rules of a standalone picture."""
    shown = Drawing()
    shown.words(_EDGE, 32, fleets.headline(fleet), _WIDTH - 2 * _EDGE, "headline")
    silent = sum(len(group.nodes) for group in fleet.silent)
    rows = _Rows(shown, 50, fleet.reported + silent)
    for word, nodes, why in fleets.rows_of(fleet)[: 2 * _MOST_ROWS]:
        rows.row(len(nodes), _COLOURS.get(word, _SILENT), f"{word}: {why}", fleets.nodes_of(nodes))
    for kind in fleet.kinds[:_MOST_KINDS]:
        rows.text(fleets.heading(kind), "bold")
        rows.row(kind.alike, "series s2", fleets.agreement(kind), "")
        found = fleets.blocks(kind)
        for nodes, (first, *others) in found[:_MOST_ROWS]:
            text = first + (f", and {len(others)} more" if others else "")
            rows.row(len(nodes), "series s1", text, fleets.nodes_of(nodes))
        if (left := len(found) - _MOST_ROWS) > 0:
            rows.text(f"and {counted(left, 'more group')} of nodes that deviate")
    if (more := len(fleet.kinds) - _MOST_KINDS) > 0:
        rows.text(f"and {counted(more, 'more kind')} of nodes")
    for note in (*fleets.left_out(fleet, _MOST_ROWS), *fleet.notes):
        rows.text(note)
    rows.text(fleet.tool)
    height = rows.top + 10
    drawing = Drawing()
    drawing.box(0, 0, _WIDTH, height, "paper")
    drawing.parts += shown.parts
    about = [fleets.headline(fleet)]
    about += [fleets.heading(kind) for kind in fleet.kinds]
    return drawing.document("fleet", _WIDTH, height, "Fleet", ". ".join(about), style)
