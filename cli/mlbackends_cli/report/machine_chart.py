"""The picture of a machine, as HTML: sockets, the accelerators at each, and the links between these."""

from collections import Counter
from collections.abc import Sequence

from mlbackends.base.errors import counted
from mlbackends.model.records import Report
from mlbackends_cli.report.topology import (
    Accelerator,
    Accelerators,
    Cache,
    Cores,
    Link,
    Node,
    Package,
    accelerators,
    processors,
)
from mlbackends_cli.text.elements import element, escaped, words
from mlbackends_cli.text.plain import binary_size

_MOST_SQUARES = 256
_MOST_PACKAGES = 32
_MOST_PIECES = 12
#: Pixels between two lines that join cards.
_LANE = 8


def picture(report: Report) -> str:
    """Return the machine as one element of a page; "" if nothing is known about its cores."""
    title, every_package, notes = processors(report)
    if not every_package:
        return ""
    packages = every_package[:_MOST_PACKAGES]
    # With a single node, every card's bus leads to it.
    is_lone = len(packages) == 1 and len(packages[0].nodes) == 1
    cards = accelerators(report)
    left_over = dict(enumerate(cards.cards))
    groups: list[tuple[Package | None, dict[int, Accelerator]]] = []
    for package in packages:
        nodes = {node.number for node in package.nodes} - {None}
        nearby = [i for i, card in left_over.items() if is_lone or card.node in nodes]
        groups.append((package, {i: left_over.pop(i) for i in nearby}))
    groups += [(None, left_over)] if left_over else []
    lines = _Lines(cards, [i for _, own in groups for i in own])
    drawn, row = [], 0
    for one, own in groups:
        frame = _package(one) + lines.strip(row - 0.5) if one else ""
        rows = []
        for card in own.values():
            is_placed = bool(card.bus) or card.node is not None
            bus = words("span", card.bus, "bus" if is_placed else "bus unknown")
            node = f"node {card.node}" if card.node is not None and not is_lone else ""
            drawing = _card(card, node, has_wire=one is not None)
            rows.append(element("div", bus if one else "", drawing, lines.strip(row), kind="row"))
            row += 1
        beside = element("div", *rows, kind="cards") if rows else ""
        drawn.append(element("div", element("div", frame, kind="place"), beside, kind="group"))
    hub = element("div", words("span", cards.hub), kind="hub") if cards.hub else ""
    more = {"more socket": len(every_package) - len(packages), "more accelerator": cards.more}
    notes += [f"and {counted(count, noun)}" for noun, count in more.items() if count]
    if cards.links:
        kinds = dict.fromkeys((link.kind, link.count) for link in cards.links)
        names = [counted(n, kind) if n else kind for kind, n in sorted(kinds)]
        notes.append(f"each line between cards: {' or '.join(names)}")
        notes[-1] += "; thicker is more" if len(names) > 1 else ""
    # What the picture shows in words, for those who do not see it.
    nodes_of_all = [node for package in every_package for node in package.nodes]
    cores = sum(core.count for node in nodes_of_all for core in node.cores)
    about = f"Picture of the machine. {title}: {len(every_package)} frames,"
    about += f" {len(nodes_of_all)} nodes, {cores} cores or threads."
    for each in cards.cards:
        place = "not known" if each.node is None else each.node
        about += f" {each.title}, {each.about}, {each.bus or 'link not known'}, node {place}."
    kind = "groups" if cards.cards or len(packages) < 2 else "groups two"
    return element(
        "figure",
        words("b", title),
        element("div", element("div", *drawn, kind=kind), hub, kind="whole"),
        *(words("p", note) for note in notes),
        kind="machine",
        role="img",
        aria_label=about,
    )


# ---- a socket, a node, a card --------------------------------------------------------------


def _package(one: Package) -> str:
    """Return a socket: a frame, its nodes, and the caches that they share."""
    cores = _counted([core for node in one.nodes for core in node.cores])
    title = f"{one.title} · {cores}" if cores and len(one.nodes) > 1 else one.title
    kind = "nodes two" if len(one.nodes) > 1 else "nodes"
    nodes = element("div", *map(_node, one.nodes), kind=kind)
    return element("div", words("b", title), nodes, _caches(one.caches), kind="frame")


def _node(one: Node) -> str:
    """Return a node: its cores as squares, its caches and its memory as bars."""
    parts = [f"NUMA node {one.number}" if one.number is not None else "", _counted(one.cores)]
    inside = [words("div", " · ".join(filter(None, parts)))]
    for cores in one.cores:
        inside += [words("div", _counted([cores]), "small")] if len(one.cores) > 1 else []
        inside.append(_squares(cores))
        if cores.caches:
            each = "each core" if cores.count > 1 else "the core"
            pieces = (words("span", part) for part in f"{each}: {cores.caches}".split(" · "))
            inside.append(element("div", " · ".join(pieces), kind="small"))
    inside.append(_caches(one.caches))
    if one.memory_bytes:
        memory = words("span", f"memory {binary_size(one.memory_bytes)}")
        inside.append(element("div", memory, kind="bars memory"))
    return element("div", *inside, kind="node")


def _counted(groups: Sequence[Cores]) -> str:
    """Return "8 performance cores, 16 efficiency cores · 32 threads"."""
    counts: Counter[tuple[str, bool]] = Counter()
    for group in groups:
        counts[group.kind, bool(group.threads)] += group.count
    parts = []
    for (kind, has_cores), count in counts.items():
        noun = ("core" if count == 1 else "cores") if has_cores else "threads"
        parts.append(f"{count} {kind} {noun}" if kind else f"{count} {noun}")
    threads = sum(group.count * group.threads for group in groups)
    if threads != sum(group.count for group in groups if group.threads):
        parts[-1] += f" · {threads} threads"
    return ", ".join(parts)


def _squares(cores: Cores) -> str:
    """Return a square for each core, divided into threads; or for several cores if there are many."""
    each = -(-cores.count // _MOST_SQUARES)
    kind = "cores" if cores.threads else "cores outlined"
    if cores.kind.startswith(("efficiency", "low-power")):
        kind += " weaker"
    if each == 1 and cores.threads > 1:
        kind += f" cut{min(cores.threads, 8)}"
    hint = f"each square is {each} cores" if each > 1 else _counted([cores])
    squares = "<i></i>" * -(-cores.count // each)
    below = words("div", hint, "small") if each > 1 else ""
    return element("div", squares, kind=kind, title=hint) + below


def _caches(caches: Sequence[Cache]) -> str:
    """Return a bar for each level, with a piece for each cache, or with their number."""
    levels: dict[str, list[str]] = {}
    for cache in caches:
        label = f"{cache.name} {binary_size(cache.size_bytes)}"
        is_whole = cache.count > _MOST_PIECES
        labels = [f"{cache.count} × {label}"] if is_whole else [label] * cache.count
        levels.setdefault(cache.name, []).extend(words("span", label) for label in labels)
    return "".join(element("div", *pieces, kind="bars") for pieces in levels.values())


def _card(one: Accelerator, node: str, *, has_wire: bool) -> str:
    """Return an accelerator, and the instances into which it is split. has_wire: shows its bus."""
    parts = [
        element("span", escaped(profile), title=f"MIG {profile} {memory}".rstrip())
        for profile, memory in one.parts
    ]
    return element(
        "div",
        words("b", one.title),
        words("div", " · ".join(filter(None, (one.about, node))), "small"),
        words("div", one.bus, "small narrow" if has_wire else "small") if one.bus else "",
        element("div", *parts, kind="bars parts") if parts else "",
        kind=f"card {one.state}",
    )


# ---- the lines that join cards, at their right: each pair's, or a switch's -----------------


class _Lines:
    """The strip at the right of each row of the picture; lines run through all strips.

    A link has a lane in which no other runs over it, the shortest next to the cards. order: the cards, from
    above to below.
    """

    def __init__(self, cards: Accelerators, order: Sequence[int]) -> None:
        self._cards = cards
        self._joined = {row: cards.cards[i] for row, i in enumerate(order) if i in cards.joined}
        place = {card: row for row, card in enumerate(order)}
        # The upper and the lower row of each.
        self._spans = {link: sorted((place[link.one], place[link.other])) for link in cards.links}
        self._lanes: dict[Link, int] = {}
        lanes: list[list[list[int]]] = []
        for link, span in sorted(
            self._spans.items(), key=lambda each: (each[1][1] - each[1][0], each[1])
        ):
            free = (
                lane
                for lane, spans in enumerate(lanes)
                if all(span[1] <= high or span[0] >= low for high, low in spans)
            )
            lane = self._lanes[link] = next(free, len(lanes))
            lanes += [[]] if lane == len(lanes) else []
            lanes[lane].append(span)
        self._width = _LANE * len(lanes) + 12 if lanes else 34 if cards.hub else 0

    def strip(self, at: float) -> str:
        """Return the strip next to a row; for 1.5, that of a frame between two rows of a narrow page."""
        if not self._width:
            return ""
        paths = []
        if self._cards.hub and at in self._joined:
            links = self._joined[int(at)].links
            hint = f"{links} NVLinks" if links else ""
            paths.append(_path(f"M0 50H{self._width}", hint, 3))
        for link, lane in self._lanes.items():
            high, low = self._spans[link]
            x = 10 + _LANE * lane
            # Lines that end at one card end at different heights, so that each can be followed.
            shift = min(lane, 5) * 6
            ends: dict[float, str] = {
                high: f"M0 {50 + shift}H{x}V101",
                low: f"M0 {50 - shift}H{x}V-1",
            }
            if high <= at <= low:
                stroke = min(1 + link.count / 3, 5) if link.count else 2
                hint = f"{link.count or ''} {link.kind}".strip()
                paths.append(_path(ends.get(at, f"M{x} -1V101"), hint, stroke))
        box = {"viewBox": f"0 0 {self._width} 100", "preserveAspectRatio": "none"}
        spacer = element("svg", width=f"{self._width}", height="0")
        return element("div", spacer, element("svg", *paths, **box), kind="strip")


def _path(steps: str, hint: str, stroke: float) -> str:
    title = words("title", hint) if hint else ""
    return element("path", title, kind="link", d=steps, stroke_width=f"{stroke:.1f}")
