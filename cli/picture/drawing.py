"""The whole picture: processors on the left, accelerators on the right or below, links between."""

from mlbackends.cli.picture.accelerators import Accelerator, Accelerators, Link, accelerators
from mlbackends.cli.picture.boxes import CARD, GAP, card, card_height, package
from mlbackends.cli.picture.machine import Package, Processors
from mlbackends.cli.picture.processors import processors
from mlbackends.cli.picture.svg import Drawing
from mlbackends.model.records import Report

_WIRE = 70
"""Between a node and its cards, where their PCI Express links run."""
_LANE = 8
_MOST_LANES = 14
_CARD_WIDTH = 330
_SIDE_BY_SIDE = 700
"""From this width on, cards stand beside the processors."""
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
        said = [f"{count} {kind}s" if count > 1 else kind for kind, count in sorted(kinds)]
        notes.append(f"each line between cards: {' or '.join(said)}; thicker is more")
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
            columns = 2 if len(one.nodes) > 1 and column >= 440 else 1
            left = x + place * (column + GAP)
            tall = max(tall, package(drawing, one, left, y, column, columns))
        y += tall + GAP
    return y


def _column(drawing: Drawing, cards: Accelerators, y: float, width: float) -> float:
    """Draw the cards below each other, each with its node in words, and the links at the right."""
    lanes = _lanes(cards)
    room = width - _margin(cards, lanes)
    middles = []
    for each in cards.cards:
        where = f"NUMA node {each.place}" if each.place is not None else ""
        card(drawing, each, 0, y, room, " · ".join(part for part in (each.bus, where) if part))
        middles.append(y + CARD / 2)
        y += card_height(each) + GAP
    _wires(drawing, cards, lanes, middles, room, width)
    return y


# ---- with the cards beside -----------------------------------------------------------------


def _beside(
    drawing: Drawing, found: Processors, cards: Accelerators, y: float, width: float
) -> float:
    """Draw each socket with the cards of its nodes at its right; return where all ends."""
    lanes = _lanes(cards)
    room = width - _margin(cards, lanes)
    right = room - _CARD_WIDTH
    left_width = right - _WIRE
    middles: dict[int, float] = {}
    todo = dict(enumerate(cards.cards))
    packages = found.packages[:_MOST_PACKAGES]
    for one in packages:
        numbers = {node.number for node in one.nodes}
        alone = len(packages) == 1 and numbers <= {None, 0}
        mine = [i for i, each in todo.items() if each.place in numbers and each.place is not None]
        if alone:
            mine = list(todo)
        columns = 2 if len(one.nodes) > 1 and left_width >= 440 else 1
        tall = package(drawing, one, 0, y, left_width, columns)
        middles |= _stack(drawing, {i: todo.pop(i) for i in mine}, y, tall, right, left_width)
        y = max([y + tall, *(middles[i] + card_height(cards.cards[i]) - CARD / 2 for i in mine)])
        y += GAP
    for i, each in todo.items():
        card(drawing, each, right, y, _CARD_WIDTH, _unplaced(each))
        middles[i] = y + CARD / 2
        y += card_height(each) + GAP
    _wires(drawing, cards, lanes, [middles[i] for i in range(len(middles))], room, width)
    return y


def _unplaced(one: Accelerator) -> str:
    where = f"NUMA node {one.place}" if one.place is not None else ""
    return " · ".join(part for part in (one.bus, where) if part)


def _stack(
    drawing: Drawing,
    mine: dict[int, Accelerator],
    y: float,
    tall: float,
    right: float,
    left: float,
) -> dict[int, float]:
    """Draw the cards of one socket below each other, joined to it; return their middles."""
    need = sum(card_height(each) + GAP for each in mine.values()) - GAP
    top = y + max(0, (tall - need) / 2)
    middles = {}
    for i, each in mine.items():
        middle = top + CARD / 2
        where = f"node {each.place}" if each.place is not None else ""
        card(drawing, each, right, top, _CARD_WIDTH, " · ".join(w for w in (each.bus, where) if w))
        if each.place is not None:
            bend = (left + right) / 2
            start = min(max(middle, y + 12), y + tall - 12)
            steps = f"M{left:.0f} {start:.1f}H{bend:.0f}V{middle:.1f}H{right:.0f}"
            drawing.path(steps, "wire", each.bus)
        middles[i] = middle
        top += card_height(each) + GAP
    return middles


# ---- what joins the cards ------------------------------------------------------------------


def _lanes(cards: Accelerators) -> dict[Link, int]:
    """Give each link a lane in which no other runs over it, the shortest next to the cards."""
    ends: list[list[tuple[int, int]]] = []
    lanes = {}
    for link in cards.links:
        free = [all(link.other <= a or link.one >= b for a, b in taken) for taken in ends]
        lane = free.index(True) if True in free else len(ends)
        ends[lane:] = ends[lane:] or [[]]
        ends[lane].append((link.one, link.other))
        lanes[link] = lane
    return lanes


def _margin(cards: Accelerators, lanes: dict[Link, int]) -> int:
    if cards.switch:
        return 60
    return _LANE * min(_MOST_LANES, max(lanes.values()) + 1) + 14 if lanes else 0


def _wires(
    drawing: Drawing,
    cards: Accelerators,
    lanes: dict[Link, int],
    middles: list[float],
    x: float,
    width: float,
) -> None:
    """Draw what joins the cards: a switch, or a line for each pair."""
    if cards.switch:
        joined = [(i, each) for i, each in enumerate(cards.cards) if each.switch]
        bar = width - 24
        top, foot = middles[joined[0][0]] - 20, middles[joined[-1][0]] + 20
        for i, each in joined:
            drawing.path(f"M{x:.0f} {middles[i]:.1f}H{bar:.0f}", "link", f"{each.links} NVLinks", 3)
        drawing.box(bar, top, 22, foot - top, "switch", cards.switch)
        drawing.upright(bar + 15, (top + foot) / 2, cards.switch, foot - top)
        return
    for link, lane in lanes.items():
        lane_x = x + 10 + _LANE * min(lane, _MOST_LANES - 1)
        one, other = middles[link.one], middles[link.other]
        # Lines that end at one card end at different heights, so that each can be followed.
        one, other = one + min(lane, 5) * 3, other - min(lane, 5) * 3
        said = f"{link.count or ''} {link.kind}".strip()
        stroke = min(1 + link.count / 3, 5) if link.count else 2
        steps = f"M{x:.0f} {one:.1f}H{lane_x:.0f}V{other:.1f}H{x:.0f}"
        drawing.path(steps, "link", said, stroke)
