"""Drawing one socket, one NUMA node, one card; each function returns how tall it became."""

from mlbackends_cli.catalogue import binary_size
from mlbackends_cli.picture.accelerators import Accelerator
from mlbackends_cli.picture.machine import Cache, Cores, Node, Package
from mlbackends_cli.picture.svg import Drawing, folded, width_of

GAP = 10
CARD = 46
_LINE = 17
_BAR = 18
_SQUARE, _STEP = 11, 14
_MOST_SQUARES = 256


def package(
    drawing: Drawing, one: Package, x: float, y: float, width: float, columns: int
) -> float:
    """Draw a socket: a frame, its nodes in columns, and the caches that they share."""
    inner = width - 2 * GAP
    column = (inner - GAP * (columns - 1)) / columns
    top = y + GAP + _LINE
    sketch = Drawing()
    for start in range(0, len(one.nodes), columns):
        row = one.nodes[start : start + columns]
        tall = max(node(Drawing(), each, 0, 0, column, 0) for each in row)
        for place, each in enumerate(row):
            node(sketch, each, x + GAP + place * (column + GAP), top, column, tall)
        top += tall + GAP
    for cache in one.caches:
        _segments(sketch, _label(cache), cache.count, x + GAP, top, inner, "cache")
        top += _BAR + 6
    height = top - y + (4 if one.caches else 0)
    drawing.box(x, y, width, height, "frame")
    drawing.words(x + GAP, y + GAP + 9, _title(one), inner, "bold")
    drawing.add(sketch)
    return height


def _title(one: Package) -> str:
    cores = _counted([each for node in one.nodes for each in node.cores])
    return f"{one.title} · {cores}" if cores and len(one.nodes) > 1 else one.title


def node(drawing: Drawing, one: Node, x: float, y: float, width: float, height: float) -> float:
    """Draw a node: its cores as squares, its caches and its memory as bars."""
    inner = width - 2 * GAP
    sketch = Drawing()
    top = y + GAP
    parts = [f"NUMA node {one.number}" if one.number is not None else "", _counted(list(one.cores))]
    if title := " · ".join(part for part in parts if part):
        sketch.words(x + GAP, top + 9, title, inner)
        top += _LINE
    for cores in one.cores:
        if len(one.cores) > 1:
            sketch.words(x + GAP, top + 9, _counted([cores]), inner, "small")
            top += _LINE - 2
        top += _squares(sketch, cores, x + GAP, top, inner)
        if cores.caches:
            each = "each core" if cores.count > 1 else "the core"
            for line in folded(f"{each}: {cores.caches}", inner, "small"):
                sketch.words(x + GAP, top + 9, line, inner, "small")
                top += _LINE - 2
            top += 2
    for name in dict.fromkeys(cache.name for cache in one.caches):
        same = [cache for cache in one.caches if cache.name == name]
        _cache_row(sketch, same, x + GAP, top, inner)
        top += _BAR + 6
    if one.memory_bytes:
        _segments(
            sketch, f"memory {binary_size(one.memory_bytes)}", 1, x + GAP, top, inner, "memory"
        )
        top += _BAR + 6
    height = max(height, top - y + 4)
    drawing.box(x, y, width, height, "node")
    drawing.add(sketch)
    return height


def _counted(groups: list[Cores]) -> str:
    """Return "8 performance cores, 16 efficiency cores · 32 threads"."""
    counts: dict[tuple[str, bool], int] = {}
    for group in groups:
        key = (group.kind, bool(group.threads))
        counts[key] = counts.get(key, 0) + group.count
    said = []
    for (kind, known), count in counts.items():
        what = ("core" if count == 1 else "cores") if known else "threads"
        said.append(f"{count} {kind} {what}" if kind else f"{count} {what}")
    threads = sum(group.count * group.threads for group in groups)
    cores = sum(group.count for group in groups if group.threads)
    if threads != cores:
        said[-1] += f" · {threads} threads"
    return ", ".join(said)


def _squares(drawing: Drawing, cores: Cores, x: float, y: float, width: float) -> float:
    """Draw a square for each core, cut into its threads; several cores a square where there are many."""
    each = -(-cores.count // _MOST_SQUARES)
    count = -(-cores.count // each)
    across = max(1, int((width + _STEP - _SQUARE) // _STEP))
    steps, cuts = [], []
    for i in range(count):
        left, top = round(x + i % across * _STEP), round(y + i // across * _STEP)
        steps.append(f"M{left} {top}h{_SQUARE}v{_SQUARE}h-{_SQUARE}z")
        if each == 1:
            for cut in range(1, min(cores.threads, 8)):
                middle = left + round(cut * _SQUARE / cores.threads, 1)
                cuts.append(f"M{middle:g} {top}v{_SQUARE}")
    said = f"each square is {each} cores" if each > 1 else _counted([cores])
    drawing.path("".join(steps), "thread" if not cores.threads else _kind(cores.kind), said)
    if cuts:
        drawing.path("".join(cuts), "cut")
    height = -(-count // across) * _STEP + 3
    if each > 1:
        drawing.words(x, y + height + 9, said, width, "small")
        height += _LINE
    return height


def _kind(name: str) -> str:
    return "core small-core" if name.startswith(("efficiency", "low-power")) else "core"


def _label(cache: Cache) -> str:
    return f"{cache.name} {binary_size(cache.size_bytes)}"


def _cache_row(drawing: Drawing, same: list[Cache], x: float, y: float, width: float) -> None:
    """Draw caches of one level side by side, those of one size together."""
    total = sum(cache.count * cache.size_bytes for cache in same)
    for cache in same:
        part = (width - 4 * (len(same) - 1)) * cache.count * cache.size_bytes / total
        _segments(drawing, _label(cache), cache.count, x, y, part, "cache")
        x += part + 4


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


def card_height(one: Accelerator, more: str = "") -> float:
    """Return how tall a card is drawn, with one more line where there is more to tell."""
    return CARD + (20 if one.parts else 0) + (_LINE if more else 0)


def card(
    drawing: Drawing,
    one: Accelerator,
    x: float,
    y: float,
    width: float,
    where: str,
    more: str = "",
) -> None:
    """Draw an accelerator, and the instances into which it is split.

    where: told beside its memory. more: told on a line of its own, the last.
    """
    height = card_height(one, more)
    drawing.box(x, y, width, height, f"card {one.state}")
    drawing.words(x + GAP, y + height - 11, more, width - 2 * GAP, "small")
    drawing.words(x + GAP, y + 18, one.title, width - 2 * GAP, "bold")
    told = " · ".join(part for part in (one.told, where) if part)
    drawing.words(x + GAP, y + 35, told, width - 2 * GAP, "small")
    if not one.parts:
        return
    room = width - 2 * GAP
    piece = (room - 3 * (len(one.parts) - 1)) / len(one.parts)
    for i, part in enumerate(one.parts):
        left = x + GAP + i * (piece + 3)
        held = f" · {binary_size(part.memory_bytes)}" if part.memory_bytes else ""
        drawing.box(left, y + CARD - 3, piece, 16, "part", f"MIG {part.name}{held}")
        drawing.words(left + piece / 2, y + CARD + 8.5, part.name, piece, "tiny", "middle")
