"""The picture of a machine: processors on the left, accelerators on the right or below, links between."""

from collections import Counter

from mlbackends.model.errors import counted
from mlbackends.model.records import Report
from mlbackends_cli.charts.accelerators import Accelerator, Accelerators, Link, accelerators
from mlbackends_cli.charts.processors import Cache, Cores, Node, Package, processors
from mlbackends_cli.charts.svg import Drawing, folded, width_of
from mlbackends_cli.text.plain import binary_size

_GAP = 10
_LINE = 17
_BAR = 18
_SQUARE, _STEP = 11, 14
_MOST_SQUARES = 256
_MOST_PACKAGES = 32
_CARD, _CARD_WIDTH = 46, 310
_WIRE = 112
"""Between a node and its cards, where their PCI Express links run."""
_SIDE_BY_SIDE = 700
"""From this width on, cards stand beside the processors."""
_TWO_COLUMNS = 440
_LANE, _MOST_LANES = 8, 14
_HUB_ROOM, _HUB_WIDTH = 60, 22


def picture(report: Report, width: int, name: str) -> str:
    """Return the machine as one SVG element of this width; "" where no fact is about its cores.

    name: its class, which must be its own on the page.
    """
    found = processors(report)
    if found is None:
        return ""
    cards = accelerators(report)
    drawing = Drawing()
    drawing.words(2, 14, found.title, width - 4, "bold")
    height = _draw(drawing, found.packages[:_MOST_PACKAGES], cards, 24.0, width)
    notes = [*found.notes]
    if len(found.packages) > _MOST_PACKAGES:
        notes.append(f"and {len(found.packages) - _MOST_PACKAGES} more sockets")
    if cards.more:
        notes.append(f"and {cards.more} more accelerators")
    if cards.links:
        kinds = dict.fromkeys((link.kind, link.count) for link in cards.links)
        names = [counted(n, kind) if n else kind for kind, n in sorted(kinds)]
        more = "; thicker is more" if len(names) > 1 else ""
        notes.append(f"each line between cards: {' or '.join(names)}{more}")
    for note in notes:
        drawing.words(2, height + 14, note, width - 4, "small")
        height += 16
    # What the picture shows in words, for those who do not see it.
    nodes = [node for package in found.packages for node in package.nodes]
    cores = sum(c.count for node in nodes for c in node.cores)
    about = f"{found.title}: {len(found.packages)} frames, {len(nodes)} nodes, {cores} cores or threads."
    for each in cards.cards:
        node = "not known" if each.node is None else each.node
        about += f" {each.title}, {each.about}, {each.bus or 'link not known'}, node {node}."
    return drawing.document(name, width, height + 6, "Picture of the machine", about)


def _draw(
    drawing: Drawing, packages: list[Package], cards: Accelerators, y: float, width: float
) -> float:
    """Draw the sockets, each with the cards of its nodes at its right where there is room for that.

    On a narrow page all cards stand below. Returns where the drawing ends.
    """
    beside = bool(cards.cards) and width >= _SIDE_BY_SIDE
    # With one node there is no other that a card's bus could lead to.
    lone = len(packages) == 1 and len(packages[0].nodes) == 1
    left_over = dict(enumerate(cards.cards))
    own: list[dict[int, Accelerator]] = []
    for one in packages if beside else []:
        nodes = {node.number for node in one.nodes} - {None}
        here = [i for i, card in left_over.items() if lone or card.node in nodes]
        own.append({i: left_over.pop(i) for i in here})
    room = width - _margin(cards, [i for mine in (*own, left_over) for i in mine])
    across = 2 if len(packages) > 1 and width >= _SIDE_BY_SIDE and not beside else 1
    column = (width - _GAP * (across - 1)) / across
    right, card_width = 1.0, room - 1
    if beside:
        right, card_width = room - _CARD_WIDTH, _CARD_WIDTH
        column = right - _WIRE
    middles: dict[int, float] = {}
    for start in range(0, len(packages), across):
        row = enumerate(packages[start : start + across])
        tall = max(_package(drawing, one, i * (column + _GAP), y, column) for i, one in row)
        mine = own[start] if beside else {}
        need = sum(_card_height(each) + _GAP for each in mine.values()) - _GAP
        top = y + max(0, (tall - need) / 2)
        foot = y + tall
        for i, each in mine.items():
            middle = middles[i] = top + _CARD / 2
            where = "" if lone else _where(each, "node")
            height = _card(drawing, each, right, top, card_width, where)
            if each.node is not None or each.bus:
                bend = column + 12
                begin = min(max(middle, y + 12), y + tall - 12)
                steps = f"M{column:.0f} {begin:.1f}H{bend:.0f}V{middle:.1f}H{right:.0f}"
                drawing.path(steps, "wire", each.bus)
                x = (bend + right) / 2
                drawing.words(x, middle - 5, each.bus, right - bend, "small", "middle")
            foot = max(foot, top + height)
            top += height + _GAP
        y = foot + _GAP
    for i, each in left_over.items():
        middles[i] = y + _CARD / 2
        where = _where(each, "NUMA node", bus=True)
        lines = (where, "") if beside else ("", where)
        y += _card(drawing, each, right, y, card_width, *lines) + _GAP
    _wires(drawing, cards, middles, room, width)
    return y


def _where(one: Accelerator, node: str, *, bus: bool = False) -> str:
    parts = [one.bus if bus else "", f"{node} {one.node}" if one.node is not None else ""]
    return " · ".join(filter(None, parts))


# ---- a socket, a node, a card: each function returns how tall it became --------------------


def _package(drawing: Drawing, one: Package, x: float, y: float, width: float) -> float:
    """Draw a socket: a frame, its nodes in columns, and the caches that they share."""
    columns = 2 if len(one.nodes) > 1 and width >= _TWO_COLUMNS else 1
    inner = width - 2 * _GAP
    column = (inner - _GAP * (columns - 1)) / columns
    top = y + _GAP + _LINE
    inside = Drawing()
    for start in range(0, len(one.nodes), columns):
        row = one.nodes[start : start + columns]
        tall = max(_node(Drawing(), each, 0, 0, column, 0) for each in row)
        for place, each in enumerate(row):
            _node(inside, each, x + _GAP + place * (column + _GAP), top, column, tall)
        top += tall + _GAP
    for cache in one.caches:
        _segments(inside, _label(cache), cache.count, x + _GAP, top, inner, "cache")
        top += _BAR + 6
    height = top - y + (4 if one.caches else 0)
    cores = _counted([each for node in one.nodes for each in node.cores])
    title = f"{one.title} · {cores}" if cores and len(one.nodes) > 1 else one.title
    drawing.box(x, y, width, height, "frame")
    drawing.words(x + _GAP, y + _GAP + 9, title, inner, "bold")
    drawing.add(inside)
    return height


def _node(drawing: Drawing, one: Node, x: float, y: float, width: float, height: float) -> float:
    """Draw a node: its cores as squares, its caches and its memory as bars."""
    inner = width - 2 * _GAP
    inside = Drawing()
    left, top = x + _GAP, y + _GAP
    parts = [f"NUMA node {one.number}" if one.number is not None else "", _counted(one.cores)]
    if title := " · ".join(filter(None, parts)):
        inside.words(left, top + 9, title, inner)
        top += _LINE
    for cores in one.cores:
        if len(one.cores) > 1:
            inside.words(left, top + 9, _counted([cores]), inner, "small")
            top += _LINE - 2
        top += _squares(inside, cores, left, top, inner)
        if cores.caches:
            each = "each core" if cores.count > 1 else "the core"
            for line in folded(f"{each}: {cores.caches}", inner, "small"):
                inside.words(left, top + 9, line, inner, "small")
                top += _LINE - 2
            top += 2
    for name in dict.fromkeys(cache.name for cache in one.caches):
        # Caches of one level stand side by side, those of one size together.
        same = [cache for cache in one.caches if cache.name == name]
        total = sum(cache.count * cache.size_bytes for cache in same)
        at = left
        for cache in same:
            part = (inner - 4 * (len(same) - 1)) * cache.count * cache.size_bytes / total
            _segments(inside, _label(cache), cache.count, at, top, part, "cache")
            at += part + 4
        top += _BAR + 6
    if one.memory_bytes:
        size = f"memory {binary_size(one.memory_bytes)}"
        _segments(inside, size, 1, left, top, inner, "memory")
        top += _BAR + 6
    height = max(height, top - y + 4)
    drawing.box(x, y, width, height, "node")
    drawing.add(inside)
    return height


def _counted(groups: list[Cores]) -> str:
    """Return "8 performance cores, 16 efficiency cores · 32 threads"."""
    counts: Counter[tuple[str, bool]] = Counter()
    for group in groups:
        counts[group.kind, bool(group.threads)] += group.count
    parts = []
    for (kind, has_cores), count in counts.items():
        what = ("core" if count == 1 else "cores") if has_cores else "threads"
        parts.append(f"{count} {kind} {what}" if kind else f"{count} {what}")
    threads = sum(group.count * group.threads for group in groups)
    if threads != sum(group.count for group in groups if group.threads):
        parts[-1] += f" · {threads} threads"
    return ", ".join(parts)


def _squares(drawing: Drawing, cores: Cores, x: float, y: float, width: float) -> float:
    """Draw a square for each core, cut into its threads; several cores a square where there are many."""
    each = -(-cores.count // _MOST_SQUARES)
    count = -(-cores.count // each)
    across = max(1, int((width + _STEP - _SQUARE) // _STEP))
    squares, cuts = [], []
    for i in range(count):
        left, top = round(x + i % across * _STEP), round(y + i // across * _STEP)
        squares.append(f"M{left} {top}h{_SQUARE}v{_SQUARE}h-{_SQUARE}z")
        for cut in range(1, min(cores.threads, 8) if each == 1 else 1):
            middle = left + round(cut * _SQUARE / cores.threads, 1)
            cuts.append(f"M{middle:g} {top}v{_SQUARE}")
    hint = f"each square is {each} cores" if each > 1 else _counted([cores])
    is_small = cores.kind.startswith(("efficiency", "low-power"))
    kind = "core small-core" if is_small else "core"
    drawing.path("".join(squares), kind if cores.threads else "thread", hint)
    if cuts:
        drawing.path("".join(cuts), "cut")
    height = -(-count // across) * _STEP + 3
    if each > 1:
        drawing.words(x, y + height + 9, hint, width, "small")
        height += _LINE
    return height


def _label(cache: Cache) -> str:
    return f"{cache.name} {binary_size(cache.size_bytes)}"


def _segments(
    drawing: Drawing, label: str, count: int, x: float, y: float, width: float, kind: str
) -> None:
    """Draw a bar of `count` pieces with a label in each; where they are too narrow, one and their count."""
    piece = (width - 3 * (count - 1)) / count
    if count > 1 and width_of(label, "small") + 8 > piece:
        count, piece, label = 1, width, f"{count} × {label}"
    for i in range(count):
        left = x + i * (piece + 3)
        drawing.box(left, y, piece, _BAR, kind)
        drawing.words(left + piece / 2, y + 13, label, piece - 4, "small", "middle")


def _card_height(one: Accelerator, below: str = "") -> float:
    return _CARD + (20 if one.parts else 0) + (_LINE if below else 0)


def _card(
    drawing: Drawing,
    one: Accelerator,
    x: float,
    y: float,
    width: float,
    where: str = "",
    below: str = "",
) -> float:
    """Draw an accelerator, and the instances into which it is split.

    where: stands beside its memory. below: on a line of its own, the last.
    """
    height = _card_height(one, below)
    left, room = x + _GAP, width - 2 * _GAP
    drawing.box(x, y, width, height, f"card {one.state}")
    drawing.words(left, y + height - 11, below, room, "small")
    drawing.words(left, y + 18, one.title, room, "bold")
    drawing.words(left, y + 35, " · ".join(filter(None, (one.about, where))), room, "small")
    for i, (profile, memory) in enumerate(one.parts):
        piece = (room - 3 * (len(one.parts) - 1)) / len(one.parts)
        at = left + i * (piece + 3)
        size = f" · {binary_size(memory)}" if memory else ""
        drawing.box(at, y + _CARD - 3, piece, 16, "part", f"MIG {profile}{size}")
        drawing.words(at + piece / 2, y + _CARD + 8.5, profile, piece, "tiny", "middle")
    return height


# ---- the lines that join cards, at their right: each pair's, or a switch's -----------------


def _margin(cards: Accelerators, order: list[int]) -> int:
    """Return how much room the lines need. order: the cards from above to below."""
    if cards.hub:
        return _HUB_ROOM
    lanes = _lanes(cards, {card: float(place) for place, card in enumerate(order)})
    return _LANE * min(_MOST_LANES, max(lanes.values()) + 1) + 14 if lanes else 2


def _wires(
    drawing: Drawing, cards: Accelerators, middles: dict[int, float], x: float, width: float
) -> None:
    """Draw the lines. middles: the height of each card's middle; x: where the cards end."""
    for link, lane in _lanes(cards, middles).items():
        lane_x = min(x + 10 + _LANE * lane, width - 4)
        high, low = sorted((middles[link.one], middles[link.other]))
        # Lines that end at one card end at different heights, so that each can be followed.
        high, low = high + min(lane, 5) * 3, low - min(lane, 5) * 3
        stroke = min(1 + link.count / 3, 5) if link.count else 2
        steps = f"M{x:.0f} {high:.1f}H{lane_x:.0f}V{low:.1f}H{x:.0f}"
        drawing.path(steps, "link", f"{link.count or ''} {link.kind}".strip(), stroke)
    if not cards.hub:
        return
    # A bar for what joins any two of the cards alike, and a line to it from each.
    bar = width - _HUB_WIDTH - 2
    heights = [middles[i] for i in cards.joined]
    top, foot = min(heights) - 20, max(heights) + 20
    for i in cards.joined:
        links = cards.cards[i].links
        hint = f"{links} NVLinks" if links else ""
        drawing.path(f"M{x:.0f} {middles[i]:.1f}H{bar:.0f}", "link", hint, 3)
    drawing.box(bar, top, _HUB_WIDTH, foot - top, "switch", cards.hub)
    drawing.upright(bar + 15, (top + foot) / 2, cards.hub, foot - top)


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
