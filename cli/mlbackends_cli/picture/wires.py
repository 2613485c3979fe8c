"""The lines that join accelerators, at the right of their cards: each pair's, or a switch's."""

from mlbackends_cli.picture.accelerators import Accelerators, Link
from mlbackends_cli.picture.svg import Drawing

_LANE = 8
_MOST_LANES = 14
_HUB_ROOM, _HUB_WIDTH = 60, 22


def margin(cards: Accelerators, order: list[int]) -> int:
    """Return how much room the lines need. order: the cards from above to below."""
    if cards.hub:
        return _HUB_ROOM
    lanes = _lanes(cards, {card: float(place) for place, card in enumerate(order)})
    return _LANE * min(_MOST_LANES, max(lanes.values()) + 1) + 14 if lanes else 2


def draw(
    drawing: Drawing, cards: Accelerators, middles: dict[int, float], x: float, width: float
) -> None:
    """Draw the lines. middles: the height of each card's middle; x: where the cards end."""
    if cards.hub:
        _hub(drawing, cards, middles, x, width)
        return
    for link, lane in _lanes(cards, middles).items():
        lane_x = min(x + 10 + _LANE * lane, width - 4)
        high, low = sorted((middles[link.one], middles[link.other]))
        # Lines that end at one card end at different heights, so that each can be followed.
        high, low = high + min(lane, 5) * 3, low - min(lane, 5) * 3
        stroke = min(1 + link.count / 3, 5) if link.count else 2
        steps = f"M{x:.0f} {high:.1f}H{lane_x:.0f}V{low:.1f}H{x:.0f}"
        drawing.path(steps, "link", f"{link.count or ''} {link.kind}".strip(), stroke)


def _lanes(cards: Accelerators, middles: dict[int, float]) -> dict[Link, int]:
    """Give each link a lane in which no other runs over it, the shortest next to the cards."""
    lanes: dict[Link, int] = {}
    taken: list[list[tuple[float, float]]] = []
    spans = {link: sorted((middles[link.one], middles[link.other])) for link in cards.links}
    for link in sorted(spans, key=lambda link: (spans[link][1] - spans[link][0], spans[link])):
        high, low = spans[link]
        free = [all(low <= above or high >= below for above, below in lane) for lane in taken]
        lanes[link] = free.index(True) if True in free else len(taken)
        if lanes[link] == len(taken):
            taken.append([])
        taken[lanes[link]].append((high, low))
    return lanes


def _hub(
    drawing: Drawing, cards: Accelerators, middles: dict[int, float], x: float, width: float
) -> None:
    """Draw a bar for what joins any two of the cards alike, and a line to it from each."""
    bar = width - _HUB_WIDTH - 2
    top = min(middles[i] for i in cards.joined) - 20
    foot = max(middles[i] for i in cards.joined) + 20
    for i in cards.joined:
        links = cards.cards[i].links
        said = f"{links} NVLinks" if links else ""
        drawing.path(f"M{x:.0f} {middles[i]:.1f}H{bar:.0f}", "link", said, 3)
    drawing.box(bar, top, _HUB_WIDTH, foot - top, "switch", cards.hub)
    drawing.upright(bar + 15, (top + foot) / 2, cards.hub, foot - top)
