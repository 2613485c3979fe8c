"""The operations that took longest, a bar each."""

from mlbackends.model.trace_views import Summary, SummaryRow
from mlbackends.tracing.finder import percent, times, took
from mlbackends_cli.picture.svg import Drawing, width_of
from mlbackends_cli.plots.colours import Colours
from mlbackends_cli.plots.scale import amount

_MOST = 15
_BAR = 18
_ROW = 42
_TALL_ROW = 58
_WIDE = 700


def bars(summary: Summary, colours: Colours, width: int, name: str) -> str:
    """Return the first fifteen rows as one SVG element; "" where there are none with a time.

    name: its class, which must be its own on the page.
    """
    shown = [row for row in summary.rows[:_MOST] if row.total_ns]
    if not shown:
        return ""
    drawing = Drawing()
    longest = max(row.total_ns for row in shown)
    place = summary.by.index("operation") if "operation" in summary.by else -1
    top = 2.0
    # Beside the name where all have room, else below the bar.
    beside = all(
        width_of(label(row)) + width_of(_told(row), "small") + 16 < width or width > _WIDE
        for row in shown
    )
    for row in shown:
        kind = colours.of(row.values[place] if place >= 0 else "")
        _bar(drawing, row, kind, row.total_ns / longest, top, width, beside=beside)
        top += _ROW if beside else _TALL_ROW
    rest = summary.groups - len(shown)
    if rest > 0:
        left = summary.total_ns - sum(row.total_ns for row in shown)
        share = left / summary.total_ns if summary.total_ns else 0
        drawing.words(2, top + 10, f"{times(rest, 'more group')}: {percent(share)}", width, "small")
        top += 16
    told = "; ".join(f"{label(row)}: {percent(row.share)}" for row in shown)
    return drawing.document(name, width, top, "The operations that took longest", told)


def label(row: SummaryRow) -> str:
    """Return what a row is of, in one line."""
    return " · ".join(value for value in row.values if value) or "all"


def _told(row: SummaryRow) -> str:
    said = [percent(row.share), took(row.total_ns), times(row.count, "call")]
    if row.gflops:
        said.append(f"{amount(row.gflops)} GFLOP/s")
    elif row.gigabytes_per_second:
        said.append(f"{amount(row.gigabytes_per_second)} GB/s")
    return " · ".join(said)


def _bar(
    drawing: Drawing,
    row: SummaryRow,
    kind: str,
    part: float,
    top: float,
    width: float,
    *,
    beside: bool,
) -> None:
    told = _told(row)
    room = width_of(told, "small") + 12 if beside else 0
    drawing.words(2, top + 12, label(row), width - room - 4)
    if beside:
        drawing.words(width - 2, top + 12, told, room, "small", "end")
    else:
        drawing.words(2, top + 18 + _BAR + 13, told, width - 4, "small")
    drawing.box(2, top + 18, width - 4, _BAR, "track")
    drawing.box(2, top + 18, max(2.0, (width - 4) * part), _BAR, kind, f"{label(row)}: {told}")
