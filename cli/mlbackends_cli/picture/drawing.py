"""The whole picture: processors on the left, accelerators on the right or below, links between."""

from mlbackends.model.errors import counted
from mlbackends.model.records import Report
from mlbackends_cli.picture import wires
from mlbackends_cli.picture.accelerators import Accelerator, Accelerators, accelerators
from mlbackends_cli.picture.boxes import CARD, GAP, card, card_height, package
from mlbackends_cli.picture.machine import Package, Processors
from mlbackends_cli.picture.processors import processors
from mlbackends_cli.picture.svg import Drawing

_WIRE = 112
"""Between a node and its cards, where their PCI Express links run."""
_CARD_WIDTH = 310
_SIDE_BY_SIDE = 700
"""From this width on, cards stand beside the processors."""
_TWO_COLUMNS = 440
_MOST_PACKAGES = 32


def picture(report: Report, width: int, name: str) -> str:
    """Return the machine as one SVG element of this width; "" where no fact tells of its cores.

    name: its class, which must be its own on the page.
    """
    found = processors(report)
    if found is None:
        return ""
    cards = accelerators(report)
    drawing = Drawing()
    drawing.words(2, 14, found.title, width - 4, "bold")
    top = 24.0
    if cards.cards and width >= _SIDE_BY_SIDE:
        height = _beside(drawing, found, cards, top, width)
    else:
        height = _above(drawing, found.packages[:_MOST_PACKAGES], 0, top, width)
        height = _column(drawing, cards, height, width)
    for note in _notes(found, cards):
        drawing.words(2, height + 14, note, width - 4, "small")
        height += 16
    title = "Picture of the machine"
    return drawing.document(name, width, height + 6, title, _told(found, cards))


def _notes(found: Processors, cards: Accelerators) -> list[str]:
    notes = list(found.notes)
    if len(found.packages) > _MOST_PACKAGES:
        notes.append(f"and {len(found.packages) - _MOST_PACKAGES} more sockets")
    if cards.more:
        notes.append(f"and {cards.more} more accelerators")
    if cards.links:
        kinds = dict.fromkeys((link.kind, link.count) for link in cards.links)
        said = [counted(n, kind) if n else kind for kind, n in sorted(kinds)]
        more = "; thicker is more" if len(said) > 1 else ""
        notes.append(f"each line between cards: {' or '.join(said)}{more}")
    return notes


def _told(found: Processors, cards: Accelerators) -> str:
    """Return what the picture shows in words, for those who do not see it."""
    nodes = sum(len(one.nodes) for one in found.packages)
    cores = sum(c.count for one in found.packages for node in one.nodes for c in node.cores)
    said = [
        f"{found.title}: {len(found.packages)} frames, {nodes} nodes, {cores} cores or threads."
    ]
    said += [
        f"{each.title}, {each.told}, {each.bus or 'link not told'},"
        f" node {each.place if each.place is not None else 'not told'}."
        for each in cards.cards
    ]
    return " ".join(said)


# ---- without cards, or with the cards below ------------------------------------------------


def _above(
    drawing: Drawing, packages: tuple[Package, ...], x: float, y: float, width: float
) -> float:
    """Draw the sockets in rows as wide as there is room for; return where they end."""
    across = 2 if len(packages) > 1 and width >= _SIDE_BY_SIDE else 1
    column = (width - GAP * (across - 1)) / across
    for start in range(0, len(packages), across):
        tall = 0.0
        for place, one in enumerate(packages[start : start + across]):
            columns = 2 if len(one.nodes) > 1 and column >= _TWO_COLUMNS else 1
            left = x + place * (column + GAP)
            tall = max(tall, package(drawing, one, left, y, column, columns))
        y += tall + GAP
    return y


def _column(drawing: Drawing, cards: Accelerators, y: float, width: float) -> float:
    """Draw the cards below each other, each with its node in words, and the links at the right."""
    room = width - wires.margin(cards, list(range(len(cards.cards))))
    middles = {}
    for i, each in enumerate(cards.cards):
        more = _place(each, each.bus, "NUMA node")
        card(drawing, each, 1, y, room - 1, "", more)
        middles[i] = y + CARD / 2
        y += card_height(each, more) + GAP
    if middles:
        wires.draw(drawing, cards, middles, room, width)
    return y


def _place(one: Accelerator, bus: str, node: str) -> str:
    where = f"{node} {one.place}" if one.place is not None else ""
    return " · ".join(part for part in (bus, where) if part)


# ---- with the cards beside -----------------------------------------------------------------


def _beside(
    drawing: Drawing, found: Processors, cards: Accelerators, y: float, width: float
) -> float:
    """Draw each socket with the cards of its nodes at its right; return where all ends."""
    packages = found.packages[:_MOST_PACKAGES]
    # With one node there is no other that a card's bus could lead to.
    lone = len(packages) == 1 and len(packages[0].nodes) == 1
    todo = dict(enumerate(cards.cards))
    own: list[dict[int, Accelerator]] = []
    for one in packages:
        numbers = {node.number for node in one.nodes} - {None}
        own.append({i: todo.pop(i) for i in list(todo) if lone or todo[i].place in numbers})
    room = width - wires.margin(cards, [i for mine in (*own, todo) for i in mine])
    right = room - _CARD_WIDTH
    left_width = right - _WIRE
    middles: dict[int, float] = {}
    for one, mine in zip(packages, own, strict=True):
        columns = 2 if len(one.nodes) > 1 and left_width >= _TWO_COLUMNS else 1
        tall = package(drawing, one, 0, y, left_width, columns)
        need = sum(card_height(each) + GAP for each in mine.values()) - GAP
        top = y + max(0, (tall - need) / 2)
        foot = y + tall
        for i, each in mine.items():
            middles[i] = top + CARD / 2
            said = _place(each, "", "node")
            card(drawing, each, right, top, _CARD_WIDTH, said if not lone else "")
            if each.place is not None or each.bus:
                _bus(drawing, each, left_width, right, middles[i], (y, y + tall))
            foot = max(foot, top + card_height(each))
            top += card_height(each) + GAP
        y = foot + GAP
    for i, each in todo.items():
        card(drawing, each, right, y, _CARD_WIDTH, _place(each, each.bus, "NUMA node"))
        middles[i] = y + CARD / 2
        y += card_height(each) + GAP
    wires.draw(drawing, cards, middles, room, width)
    return y


def _bus(
    drawing: Drawing,
    one: Accelerator,
    left: float,
    right: float,
    middle: float,
    span: tuple[float, float],
) -> None:
    """Draw the line from a socket to a card, which leaves the socket where that is."""
    bend = left + 12
    start = min(max(middle, span[0] + 12), span[1] - 12)
    drawing.path(f"M{left:.0f} {start:.1f}H{bend:.0f}V{middle:.1f}H{right:.0f}", "wire", one.bus)
    drawing.words((bend + right) / 2, middle - 5, one.bus, right - bend, "small", "middle")
