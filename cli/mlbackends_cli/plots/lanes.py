"""When which operation ran: a lane for each thread, filled as high as it was busy."""

from mlbackends.model.trace_views import Lane, Span, Timeline
from mlbackends.tracing.finder import percent, took
from mlbackends_cli.picture.svg import Drawing
from mlbackends_cli.plots.colours import OTHER, Colours
from mlbackends_cli.plots.scale import TICKS_APART, notes, steps

_MOST_LANES = 16
_MOST_BOXES = 4000
_HEIGHT = 46


def lanes(timeline: Timeline, colours: Colours, width: int, name: str) -> str:
    """Return the timeline as one SVG element; "" where nothing has a time."""
    shown = timeline.lanes[:_MOST_LANES]
    if not shown or not timeline.end_ns:
        return ""
    drawing = Drawing()
    top = colours.legend(drawing, 2, 2, width - 4) + 8
    boxes = sum(len(span.by_operation) for lane in shown for span in lane.spans)
    pixels = (width - 4) / timeline.end_ns
    for lane in shown:
        drawing.words(2, top + 11, _title(lane, timeline), width - 4, "small")
        drawing.box(2, top + 16, width - 4, _HEIGHT, "track")
        if boxes <= _MOST_BOXES:
            for span in lane.spans:
                _span(drawing, span, colours, timeline, pixels, top + 16 + _HEIGHT)
        else:
            _merged(drawing, lane, colours, timeline, pixels, top + 16 + _HEIGHT)
        top += _HEIGHT + 24
    _axis(drawing, timeline, pixels, top - 4, width)
    top += 22
    top += notes(drawing, _notes(timeline), top, width)
    told = "; ".join(_title(lane, timeline) for lane in shown)
    return drawing.document(name, width, top + 2, "When which operation ran", told)


def _title(lane: Lane, timeline: Timeline) -> str:
    busy = percent(min(1.0, lane.busy_ns / timeline.end_ns)) if timeline.end_ns else ""
    return f"{lane.name} · {lane.count:,} calls · busy {took(lane.busy_ns)} ({busy})"


def _heights(span: Span, timeline: Timeline) -> list[tuple[str, float, float]]:
    """Return each operation of a stretch with its time and its height in pixels; all fit the lane."""
    full = max(timeline.width_ns, span.busy_ns) or 1
    return [(name, busy, _HEIGHT * busy / full) for name, busy in span.by_operation]


def _span(
    drawing: Drawing,
    span: Span,
    colours: Colours,
    timeline: Timeline,
    pixels: float,
    foot: float,
) -> None:
    left, wide = _place(span, timeline, pixels)
    for name, busy, height in _heights(span, timeline):
        if height >= 0.3:
            foot -= height
            said = (
                f"{name}: {took(busy)} of {took(timeline.width_ns)}, from {took(span.start_ns)} on"
            )
            drawing.path(_cell(left, foot, wide, height), f"{colours.of(name)} cell", said)


def _merged(
    drawing: Drawing, lane: Lane, colours: Colours, timeline: Timeline, pixels: float, foot: float
) -> None:
    """Draw a lane as one shape for each colour: a page of a hundred thousand boxes opens slowly."""
    paths: dict[str, list[str]] = {}
    for span in lane.spans:
        left, wide = _place(span, timeline, pixels)
        low = foot
        for name, _, height in _heights(span, timeline):
            if height >= 0.3:
                low -= height
                cell = _cell(left, low, wide, height)
                paths.setdefault(colours.of(name), []).append(cell)
    for kind, parts in sorted(paths.items(), key=lambda item: item[0] == OTHER):
        drawing.path("".join(parts), f"{kind} cell")


def _cell(left: float, top: float, width: float, height: float) -> str:
    # No rounded corners: neighbours shall look like one.
    return f"M{left:.1f} {top:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"


def _place(span: Span, timeline: Timeline, pixels: float) -> tuple[float, float]:
    left = 2 + span.start_ns * pixels
    end = min(span.start_ns + timeline.width_ns, timeline.end_ns) * pixels + 2
    # A little over the edge: a page that is scaled down would show gaps between neighbours.
    return left, max(0.6, end - left + 0.4)


def _axis(drawing: Drawing, timeline: Timeline, pixels: float, y: float, width: float) -> None:
    for time in steps(0, timeline.end_ns, max(2, int(width / TICKS_APART))):
        x = 2 + time * pixels
        drawing.path(f"M{x:.1f} {y - 4:.1f}v4", "wire")
        anchor = "start" if x < 20 else "end" if x > width - 30 else "middle"
        drawing.words(x, y + 13, took(time) if time else "0", 90, "small", anchor)


def _notes(timeline: Timeline) -> list[str]:
    found = []
    if timeline.synthetic:
        found.append("The trace has no time stamps: calls stand one behind the other.")
    elif timeline.partly:
        found.append("Some calls have no time stamp: they stand behind the call before them.")
    more = len(timeline.lanes) - _MOST_LANES + timeline.skipped_lanes
    if len(timeline.lanes) > _MOST_LANES or timeline.skipped_lanes:
        found.append(f"and {more:,} more threads")
    return found
