"""Charts of a trace: when each operation ran, and work against traffic."""

import math
from collections.abc import Iterator

from mlbackends.base.errors import counted
from mlbackends.model.trace_views import Lane, Roofline, Timeline
from mlbackends.tracing.finder import percent, took
from mlbackends_cli.charts.plot import TICKS_APART, Plot, Point, Roof, Series, short_number, steps
from mlbackends_cli.charts.svg import OTHER, Colours, Drawing, draw_plot

_MOST_LANES = 16
_MOST_CELLS = 4000
_LANE = 46


def lanes(timeline: Timeline, colours: Colours, width: int, name: str) -> str:
    """Return a lane for each thread, filled as high as it was busy, as SVG; "" where nothing has a time."""
    shown = timeline.lanes[:_MOST_LANES]
    end = timeline.end_ns
    if not shown or not end:
        return ""
    drawing = Drawing()
    top = colours.legend(drawing, 2, 2, width - 4) + 8
    pixels = (width - 4) / end
    # A page of a hundred thousand shapes opens slowly: then a lane is one shape a colour.
    merged = sum(len(span.by_operation) for lane in shown for span in lane.spans) > _MOST_CELLS
    titles = []
    for lane in shown:
        busy = f"{took(lane.busy_ns)} ({percent(min(1.0, lane.busy_ns / end))})"
        titles.append(f"{lane.name} · {lane.count:,} calls · busy {busy}")
        drawing.words(2, top + 11, titles[-1], width - 4, "axis")
        drawing.box(2, top + 16, width - 4, _LANE, "track")
        paths: dict[str, list[str]] = {}
        for kind, cell, hint in _cells(lane, timeline, pixels, top + 16 + _LANE):
            kind = f"{colours.of(kind)} cell"
            if merged:
                paths.setdefault(kind, []).append(cell)
            else:
                drawing.path(cell, kind, hint)
        for kind, parts in sorted(paths.items(), key=lambda item: item[0].startswith(OTHER)):
            drawing.path("".join(parts), kind)
        top += _LANE + 24
    for time in steps(0, end, max(2, int(width / TICKS_APART))):
        x = 2 + time * pixels
        drawing.path(f"M{x:.1f} {top - 8:.1f}v4", "wire")
        anchor = "start" if x < 20 else "end" if x > width - 30 else "middle"
        drawing.words(x, top + 11, took(time) if time else "0", 90, "axis", anchor)
    top += 24
    notes = []
    if timeline.synthetic:
        notes.append("The trace has no time stamps: calls are drawn one after the other.")
    elif timeline.partly:
        notes.append("Some calls have no time stamp: they are drawn after the call before them.")
    if more := max(0, len(timeline.lanes) - _MOST_LANES) + timeline.skipped_lanes:
        notes.append(f"and {more:,} more threads")
    top += drawing.notes(notes, top, width)
    return drawing.document(name, width, top + 2, "When which operation ran", "; ".join(titles))


def _cells(lane: Lane, timeline: Timeline, pixels: float, foot: float) -> Iterator[tuple[str, str, str]]:
    """Yield each operation of each stretch of a lane: its name, its path and a hint; all fit the lane."""
    for span in lane.spans:
        full = max(timeline.width_ns, span.busy_ns) or 1
        left = 2 + span.start_ns * pixels
        end = 2 + min(span.start_ns + timeline.width_ns, timeline.end_ns) * pixels
        # A little over the edge: a page that is scaled down would show gaps between neighbours.
        # No rounded corners: neighbours shall look like one.
        width = max(0.6, end - left + 0.4)
        stretch = f"{took(timeline.width_ns)}, from {took(span.start_ns)} on"
        top = foot
        for operation, busy in span.by_operation:
            height = _LANE * busy / full
            if height >= 0.3:
                top -= height
                path = f"M{left:.1f} {top:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
                yield operation, path, f"{operation}: {took(busy)} of {stretch}"


def points(roofline: Roofline, colours: Colours, width: int, name: str) -> str:
    """Return what each call reached against its operations a byte, as SVG; "" where none is known."""
    shown = [point for point in roofline.points if point.intensity > 0 and point.gflops > 0]
    if not shown:
        return ""
    speed = max(point.gflops for point in shown)
    roof = Roof(speed, max(point.gigabytes_per_second for point in shown), "the best seen here")
    note = "the dashed line is the best seen in this trace"
    if found := roofline.roof:
        roof = Roof(found.gflops, found.gigabytes_per_second, "this machine")
        note = f"the dashed line is what this machine reached just now: {found.by}"
    longest = max(point.total_ns for point in shown)
    by_operation: dict[str, list[Point]] = {}
    for point in shown:
        hint = (
            f"{point.operation} {point.shape} {point.dtype} {point.implementation}:"
            f" {short_number(point.gflops)} GFLOP/s, {short_number(point.gigabytes_per_second)} GB/s,"
            f" {short_number(point.intensity)} operations a byte, {counted(point.count, 'call')},"
            f" {took(point.total_ns)}"
        )
        mark = Point(point.intensity, point.gflops, hint, math.sqrt(point.total_ns / longest))
        by_operation.setdefault(point.operation, []).append(mark)
    plot = Plot(
        title="",
        across="FLOP per byte",
        up="GFLOP/s",
        series=tuple(Series(operation, tuple(marks)) for operation, marks in by_operation.items()),
        roof=roof,
        joined=False,
    )
    drawing = Drawing()
    height = max(300, min(460, width * 0.45))
    draw_plot(drawing, plot, colours, (0, -16), (width, height))
    notes = [f"A larger mark took longer; {note}."]
    if roofline.groups > len(shown):
        notes.append(f"and {roofline.groups - len(shown):,} more different calls")
    if roofline.left_out:
        calls = counted(roofline.left_out, "call")
        notes.append(f"{calls} whose work is not known, as of reorders, left out")
    height += drawing.notes(notes, height - 14, width) - 12
    about = f"{len(shown)} different calls; the best reached {short_number(speed)} GFLOP/s"
    return drawing.document(name, width, height, "GFLOP/s against operations a byte", about)
