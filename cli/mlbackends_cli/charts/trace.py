"""Charts of a trace: the operations that took longest, when each ran, and work against traffic."""

import math
from collections.abc import Iterator

from mlbackends.model.trace_views import Lane, Roofline, Summary, SummaryRow, Timeline
from mlbackends.tracing.finder import percent, times, took
from mlbackends_cli.charts.axes import MARGIN, TICKS_APART, Frame, short_number, steps
from mlbackends_cli.charts.svg import OTHER, Colours, Drawing, width_of

_MOST_BARS = 15
_BAR, _ROW, _TALL_ROW = 18, 42, 58
_WIDE = 700
_MOST_LANES = 16
_MOST_CELLS = 4000
_LANE = 46


def bars(summary: Summary, colours: Colours, width: int, name: str) -> str:
    """Return a bar for each of the first fifteen rows, as SVG; "" where there are none with a time.

    name: its class, which must be its own on the page.
    """
    shown = [row for row in summary.rows[:_MOST_BARS] if row.total_ns]
    if not shown:
        return ""
    drawing = Drawing()
    longest = max(row.total_ns for row in shown)
    place = summary.by.index("operation") if "operation" in summary.by else -1
    # Beside the name where all have room, else below the bar.
    beside = width > _WIDE or all(
        width_of(label(row)) + width_of(_numbers(row), "small") + 16 < width for row in shown
    )
    top = 2.0
    for row in shown:
        title, numbers = label(row), _numbers(row)
        room = width_of(numbers, "small") + 12 if beside else 0
        drawing.words(2, top + 12, title, width - room - 4)
        if beside:
            drawing.words(width - 2, top + 12, numbers, room, "small", "end")
        else:
            drawing.words(2, top + 18 + _BAR + 13, numbers, width - 4, "small")
        long = max(2.0, (width - 4) * row.total_ns / longest)
        kind = colours.of(row.values[place] if place >= 0 else "")
        drawing.box(2, top + 18, width - 4, _BAR, "track")
        drawing.box(2, top + 18, long, _BAR, kind, f"{title}: {numbers}")
        top += _ROW if beside else _TALL_ROW
    rest = summary.groups - len(shown)
    if rest > 0:
        left = summary.total_ns - sum(row.total_ns for row in shown)
        share = left / summary.total_ns if summary.total_ns else 0
        drawing.words(2, top + 10, f"{times(rest, 'more group')}: {percent(share)}", width, "small")
        top += 16
    about = "; ".join(f"{label(row)}: {percent(row.share)}" for row in shown)
    return drawing.document(name, width, top, "The operations that took longest", about)


def label(row: SummaryRow) -> str:
    """Return what a row is of, in one line."""
    return " · ".join(value for value in row.values if value) or "all"


def _numbers(row: SummaryRow) -> str:
    parts = [percent(row.share), took(row.total_ns), times(row.count, "call")]
    if row.gflops:
        parts.append(f"{short_number(row.gflops)} GFLOP/s")
    elif row.gigabytes_per_second:
        parts.append(f"{short_number(row.gigabytes_per_second)} GB/s")
    return " · ".join(parts)


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
        drawing.words(2, top + 11, titles[-1], width - 4, "small")
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
        drawing.words(x, top + 9, took(time) if time else "0", 90, "small", anchor)
    top += 22
    notes = []
    if timeline.synthetic:
        notes.append("The trace has no time stamps: calls stand one behind the other.")
    elif timeline.partly:
        notes.append("Some calls have no time stamp: they stand behind the call before them.")
    if more := max(0, len(timeline.lanes) - _MOST_LANES) + timeline.skipped_lanes:
        notes.append(f"and {more:,} more threads")
    top += drawing.notes(notes, top, width)
    return drawing.document(name, width, top + 2, "When which operation ran", "; ".join(titles))


def _cells(
    lane: Lane, timeline: Timeline, pixels: float, foot: float
) -> Iterator[tuple[str, str, str]]:
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
    shown = [each for each in roofline.points if each.intensity > 0 and each.gflops > 0]
    if not shown:
        return ""
    drawing = Drawing()
    top = colours.legend(drawing, 2, 2, width - 4) + 28
    bottom = top + max(240, min(420, width * 0.42))
    intensities, gflops = [each.intensity for each in shown], [each.gflops for each in shown]
    speed, traffic = max(gflops), max(each.gigabytes_per_second for each in shown)
    whose, note = "the best seen here", "the dashed line is the best seen in this trace"
    if roof := roofline.roof:
        speed, traffic = roof.gflops, roof.gigabytes_per_second
        whose, note = (
            "this machine",
            f"the dashed line is what this machine reached just now: {roof.by}",
        )
        gflops.append(speed)
    frame = Frame(drawing, (MARGIN, top, width - 10.0, bottom), intensities, gflops)
    frame.grid(("floating-point operations a byte", "GFLOP/s"))
    hint = f"{whose}: {short_number(traffic)} GB/s, {short_number(speed)} GFLOP/s"
    frame.roof((min(intensities) / 1.25, max(intensities) * 1.25), speed, traffic, hint)
    longest = max(each.total_ns for each in shown)
    # Large ones first, so that they do not hide small ones.
    for each in sorted(shown, key=lambda one: -one.total_ns):
        hint = (
            f"{each.operation} {each.shape} {each.dtype} {each.implementation}:"
            f" {short_number(each.gflops)} GFLOP/s, {short_number(each.gigabytes_per_second)} GB/s,"
            f" {short_number(each.intensity)} operations a byte, {times(each.count, 'call')},"
            f" {took(each.total_ns)}"
        )
        radius = 3 + 11 * math.sqrt(each.total_ns / longest)
        kind = f"{colours.of(each.operation)} dot"
        drawing.circle(*frame.at(each.intensity, each.gflops), radius, kind, hint)
    notes = [f"A larger circle took longer; {note}."]
    if roofline.groups > len(shown):
        notes.append(f"and {roofline.groups - len(shown):,} more different calls")
    if roofline.left_out:
        calls = times(roofline.left_out, "call")
        notes.append(f"{calls} whose work is not known, as of reorders, left out")
    height = bottom + 40
    height += drawing.notes(notes, height, width)
    best = short_number(max(each.gflops for each in shown))
    about = f"{len(shown)} different calls; the best reached {best} GFLOP/s"
    return drawing.document(name, width, height + 2, "GFLOP/s against operations a byte", about)
