"""The page of a fleet: picture, nodes without a report, hazards by node, and deviations of each kind."""

from mlbackends.model.fleet import Deviation, Fleet, Kind
from mlbackends_cli.fleet import text as fleets
from mlbackends_cli.fleet.chart import sheet
from mlbackends_cli.report import checks
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.elements import (
    breakable,
    document,
    element,
    escaped,
    finding,
    footer,
    header,
    items,
    scrolled,
    section,
    table,
    words,
)

_MOST_FACTS = 40


def fleet_page(fleet: Fleet, _page: Page) -> str:
    """Return the page; every node is on it."""
    silent = sum(len(each.nodes) for each in fleet.silent)
    deviating = sum(kind.nodes - kind.alike for kind in fleet.kinds)
    numbers = [(f"{fleet.reported:,}", "reported"), (f"{silent:,}", "without a report")]
    numbers += [(f"{deviating:,}", "deviate"), (f"{len(fleet.configurations):,}", "configurations")]
    title = fleets.headline(fleet)
    rows = [
        [
            words("td", str(each.status)),
            words("td", f"{len(each.nodes):,}"),
            _nodes(each.nodes),
            words("td", each.error),
        ]
        for each in fleet.silent
    ]
    found = [
        finding(
            str(hazard.check.severity),
            f"{fleets.number_of(len(hazard.nodes))}: {checks.sentence(hazard.check)}",
            checks.code(hazard.check),
            element("p", breakable(fleets.nodes_of(hazard.nodes, whole=True)), kind="dim"),
        )
        for hazard in fleet.hazards
    ]
    body = [
        header("Fleet", (title,), numbers),
        "<main>\n",
        section("picture", "All of it", scrolled(sheet(fleet), "The groups of nodes by size")),
        section("silent", "Without a report", table(("status", "nodes", "which", "why"), rows)),
        section("hazards", "Hazards", element("ul", *found, kind="findings") if found else ""),
        *(_kind(kind, fleet.compared_with, at) for at, kind in enumerate(fleet.kinds)),
        section("notes", "Notes", items("", *map(escaped, fleet.notes))),
        "</main>\n",
        footer({"made by": fleet.tool, "schema": fleet.schema}),
    ]
    return document(title, "".join(body), ("page", "findings", "../charts/charts"))


def _nodes(nodes: tuple[str, ...]) -> str:
    return element("td", breakable(fleets.nodes_of(nodes, whole=True)))


def _kind(kind: Kind, compared_with: str, at: int) -> str:
    title = fleets.heading(kind)
    rows = [
        [
            words("td", f"{len(deviation.nodes):,}"),
            _nodes(deviation.nodes),
            element("td", _facts(deviation)),
        ]
        for deviation in kind.deviations
    ]
    left_out = f"Not compared, nearly every node has its own value: {', '.join(kind.not_compared)}"
    return section(
        f"kind-{at}",
        title,
        words("p", fleets.agreement(kind, compared_with)),
        table(("nodes", "which", "differ in"), rows),
        words("p", left_out, "dim") if kind.not_compared else "",
    )


def _facts(deviation: Deviation) -> str:
    found = fleets.causes(deviation)
    lines = [breakable(fleets.sentence(each)) for each in found[:_MOST_FACTS]]
    more = len(found) - _MOST_FACTS
    return items("records", *lines, *([f"and {more} more"] if more > 0 else []))
