"""The chart of a trace: work against traffic."""

import math

from mlbackends.base.errors import counted
from mlbackends.model.trace_views import Roofline
from mlbackends.tracing.finder import took
from mlbackends_cli.charts.plot import Plot, Point, Roof, Series, short_number
from mlbackends_cli.charts.svg import Colours, Drawing, draw_plot


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
