"""What each call reached against how much it computes a byte: a roofline of what this trace saw."""

import math

from mlbackends.model.trace_views import Roofline, RooflinePoint
from mlbackends.tracing.finder import times, took
from mlbackends_cli.picture.svg import Drawing
from mlbackends_cli.plots.colours import Colours
from mlbackends_cli.plots.scale import MARGIN, Logarithmic, amount, grid, notes

_LEFT, _TOP, _FOOT = int(MARGIN), 24, 40


def points(roofline: Roofline, colours: Colours, width: int, name: str) -> str:
    """Return the points as one SVG element; "" where no call tells its sizes and time."""
    shown = [each for each in roofline.points if each.intensity > 0 and each.gflops > 0]
    if not shown:
        return ""
    drawing = Drawing()
    legend = colours.legend(drawing, 2, 2, width - 4)
    top = legend + _TOP + 4
    right, bottom = width - 10.0, top + max(240, min(420, width * 0.42))
    frame = (float(_LEFT), top, right, bottom)
    across = Logarithmic(
        min(each.intensity for each in shown), max(each.intensity for each in shown), _LEFT, right
    )
    up = Logarithmic(
        min(each.gflops for each in shown), max(each.gflops for each in shown), bottom, top
    )
    drawing.box(_LEFT, top, right - _LEFT, bottom - top, "plot")
    grid(drawing, across, up, frame, ("floating-point operations a byte", "GFLOP/s"))
    _roof(drawing, shown, across, up)
    longest = max(each.total_ns for each in shown)
    # Large ones first, so that they do not hide small ones.
    for each in sorted(shown, key=lambda one: -one.total_ns):
        _point(drawing, each, colours.of(each.operation), across, up, longest)
    height = bottom + _FOOT
    height += notes(drawing, _notes(roofline, shown), height, width)
    told = f"{len(shown)} different calls; the best reached {amount(max(p.gflops for p in shown))} GFLOP/s"
    return drawing.document(name, width, height + 2, "GFLOP/s against operations a byte", told)


def _roof(
    drawing: Drawing, shown: list[RooflinePoint], across: Logarithmic, up: Logarithmic
) -> None:
    """Draw the best that was seen: bytes a second as a slope, operations a second as a level."""
    speed = max(each.gflops for each in shown)
    traffic = max(each.gigabytes_per_second for each in shown)
    low, high = (pick(each.intensity for each in shown) for pick in (min, max))
    low, high = low / 1.25, high * 1.25
    corner = speed / traffic
    steps = [(low, min(speed, low * traffic))]
    if low < corner < high:
        steps.append((corner, speed))
    steps.append((high, min(speed, high * traffic)))
    path = "L".join(f"{across.at(x):.1f} {up.at(y):.1f}" for x, y in steps)
    said = f"the best seen here: {amount(traffic)} GB/s, {amount(speed)} GFLOP/s"
    drawing.path(f"M{path}", "roof", said)


def _point(
    drawing: Drawing,
    point: RooflinePoint,
    kind: str,
    across: Logarithmic,
    up: Logarithmic,
    longest: float,
) -> None:
    x, y = across.at(point.intensity), up.at(point.gflops)
    radius = 3 + 11 * math.sqrt(point.total_ns / longest)
    said = (
        f"{point.operation} {point.shape} {point.dtype} {point.implementation}:"
        f" {amount(point.gflops)} GFLOP/s, {amount(point.gigabytes_per_second)} GB/s,"
        f" {amount(point.intensity)} operations a byte, {times(point.count, 'call')},"
        f" {took(point.total_ns)}"
    )
    step = f"M{x - radius:.1f} {y:.1f}a{radius:.1f} {radius:.1f} 0 1 0 {2 * radius:.1f} 0"
    drawing.path(
        f"{step}a{radius:.1f} {radius:.1f} 0 1 0 -{2 * radius:.1f} 0z", f"{kind} dot", said
    )


def _notes(roofline: Roofline, shown: list[RooflinePoint]) -> list[str]:
    found = ["A larger circle took longer; the dashed line is the best seen in this trace."]
    if roofline.groups > len(shown):
        found.append(f"and {roofline.groups - len(shown):,} more different calls")
    if roofline.left_out:
        found.append(
            f"{times(roofline.left_out, 'call')} whose work is not told, as of reorders, left out"
        )
    return found
