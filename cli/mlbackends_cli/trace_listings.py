"""The views of a trace as lists for people: what `--format table` and `markdown` print."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from mlbackends.model.trace_views import (
    AnyView,
    Change,
    Difference,
    DispatchView,
    Findings,
    Lane,
    Refused,
    Repro,
    Roofline,
    Summary,
    SummaryRow,
    Timeline,
)
from mlbackends.tracing.finder import percent, times, took
from mlbackends_cli.listing import Group, Listing
from mlbackends_cli.plain import one_line, shortened
from mlbackends_cli.plots.scale import amount

_LONGEST = 200
_BLOCKS = " ▁▂▃▄▅▆▇█"


def listing(view: AnyView, *, everything: bool = False) -> Listing:
    """Return a view as a list. everything: of a comparison, also what did not change."""
    if isinstance(view, Difference):
        return _diff(view, everything=everything)
    return _OF[type(view)](view)


def _text(text: str) -> str:
    return one_line(shortened(text, _LONGEST))


def _time(duration: float | None) -> str:
    return "" if duration is None else took(duration)


def _rate(rate: float | None) -> str:
    return "" if rate is None else amount(rate)


def _summary(view: Summary) -> Listing:
    # A column that would be empty, as MKL's implementation, is none.
    told = [
        place
        for place, _ in enumerate(view.by)
        if any(row.values[place] for row in view.rows) or len(view.by) == 1
    ]
    columns = [*(view.by[place] for place in told), "calls", "time", "share", "cumulative"]
    columns += ["mean", "median", "min", "max", "±", "GFLOP/s", "GB/s"]
    rows = [
        (*(_text(row.values[place]) or "-" for place in told), *_numbers(row)) for row in view.rows
    ]
    if not told:
        columns, rows = ["", *columns], [("all", *row) for row in rows]
    if view.others is not None:
        more = f"{view.groups - len(view.rows):,} more"
        rows.append((more, *("" for _ in told[1:]), *_numbers(view.others)))
    notes = [f"{times(view.count, 'call')}, {took(view.total_ns)}"]
    notes += [
        f"in no total: {times(one.count, 'line')}, {took(one.total_ns)}: {one.why}"
        for one in view.uncounted
    ]
    return Listing(tuple(columns), (Group("", tuple(rows)),), tuple(notes))


def _numbers(row: SummaryRow) -> tuple[str, ...]:
    return (
        f"{row.count:,}",
        took(row.total_ns),
        percent(row.share),
        percent(row.cumulative_share),
        _time(row.mean_ns),
        _time(row.median_ns),
        _time(row.min_ns),
        _time(row.max_ns),
        "" if row.deviation is None else f"{row.deviation:.0%}",
        _rate(row.gflops),
        _rate(row.gigabytes_per_second),
    )


def _findings(view: Findings) -> Listing:
    groups = []
    for one in view.found:
        rows = [("seen", _text(one.seen)), ("why", _text(one.why)), ("do", _text(one.action))]
        rows += [("line", _text(line)) for line in one.evidence]
        title = f"{one.severity}: {one.code}"
        groups.append(Group(title, tuple(row for row in rows if row[1]), one.code))
    marked = frozenset(
        (number, 0) for number, one in enumerate(view.found) if one.severity in {"high", "medium"}
    )
    notes = () if view.found else (f"nothing was found; {len(view.asked)} things were looked for",)
    return Listing(("", ""), tuple(groups), notes, marked)


def _dispatch(view: DispatchView) -> Listing:
    groups = tuple(_refused(one) for one in view.operations)
    notes = [] if view.count else ["no refusals: trace with --level dispatch"]
    if view.left_out:
        notes.append(f"{view.left_out:,} more kinds of refusal were left out")
    return Listing(("implementation", "times", "why not", "where"), groups, tuple(notes))


def _refused(one: Refused) -> Group:
    taken = ", ".join(f"{name} ({count:,})" for name, count in one.taken)
    title = f"{one.operation}: {times(one.count, 'refusal')}" + (
        f"; taken: {taken}" if taken else ""
    )
    rows = tuple(
        (
            _text(each.implementation) or "-",
            f"{each.count:,}",
            _text(each.reason),
            _text(each.place),
        )
        for each in one.refusals
    )
    return Group(_text(title), rows, one.operation)


def _timeline(view: Timeline) -> Listing:
    rows = tuple(
        (_text(lane.name), f"{lane.count:,}", took(lane.busy_ns), _busiest(lane), _bars(lane, view))
        for lane in view.lanes
    )
    notes = [f"from 0 to {took(view.end_ns)}"]
    if view.synthetic:
        notes.append("the trace has no time stamps: calls stand one behind the other")
    elif view.partly:
        notes.append("some calls have no time stamp: they stand behind the call before them")
    if view.skipped_lanes:
        notes.append(f"{view.skipped_lanes:,} more threads were left out")
    columns = ("thread", "calls", "busy", "most", "how busy over time")
    return Listing(columns, (Group("", rows),), tuple(notes))


def _busiest(lane: Lane) -> str:
    sums: dict[str, float] = {}
    for span in lane.spans:
        for operation, busy in span.by_operation:
            sums[operation] = sums.get(operation, 0.0) + busy
    return _text(max(sums, key=lambda name: sums[name], default=""))


def _bars(lane: Lane, view: Timeline, columns: int = 60) -> str:
    """Return one character a stretch, as high as the lane was busy in it."""
    busy = [0.0] * columns
    step = (view.end_ns or 1) / columns
    for span in lane.spans:
        start = span.start_ns / step
        end = min(columns, (span.start_ns + view.width_ns) / step)
        for place in range(int(start), min(columns, int(end) + 1)):
            inside = min(end, place + 1) - max(start, place)
            busy[place] += span.busy_ns * max(0.0, inside) / ((end - start) or 1)
    return "".join(_BLOCKS[min(8, math.ceil(8 * each / step))] for each in busy).rstrip()


def _roofline(view: Roofline) -> Listing:
    rows = tuple(
        (
            point.operation,
            _text(point.shape),
            point.dtype,
            _text(point.implementation),
            f"{point.count:,}",
            took(point.total_ns),
            amount(point.intensity),
            amount(point.gflops),
            amount(point.gigabytes_per_second),
        )
        for point in view.points
    )
    columns = ("operation", "shape", "dtype", "implementation", "calls", "time", "FLOP/byte")
    notes = [f"{times(view.left_out, 'call')} without known work left out"] if view.left_out else []
    return Listing((*columns, "GFLOP/s", "GB/s"), (Group("", rows),), tuple(notes))


def uncompared(view: Difference) -> str:
    """Say why two traces have nothing in common that could be compared; "" where they have."""
    if any(one.before is not None and one.after is not None for one in view.changes):
        return ""
    empty = [
        name
        for name, count in (("before", view.before_count), ("after", view.after_count))
        if not count
    ]
    if empty:
        return f"there is no call in the trace {' and the trace '.join(empty)}"
    return "no call is in both traces"


def verdict(view: Difference) -> str:
    """Return how a comparison ended in one line."""
    counts = Counter(one.verdict for one in view.changes)
    numbers = ", ".join(f"{counts[name]:,} {name}" for name in _CHANGED)
    if view.failed:
        return f"{numbers}: fail"
    return f"{numbers}: {'nothing was compared' if uncompared(view) else 'pass'}"


_CHANGED = ("slower", "faster", "new", "gone")
_UNCHANGED = ("noise", "same")


def _diff(view: Difference, *, everything: bool) -> Listing:
    groups: list[Group] = []
    marked: set[tuple[int, int]] = set()
    for name in (*_CHANGED, *_UNCHANGED) if everything else _CHANGED:
        rows = [_change(one, view.by, view.measure) for one in view.changes if one.verdict == name]
        if rows:
            if name == "slower":
                marked = {(len(groups), number) for number, _ in enumerate(rows)}
            groups.append(Group(f"{name} ({len(rows)})", tuple(rows), name))
    counts = Counter(one.verdict for one in view.changes)
    hidden = [f"{counts[name]:,} {name}" for name in ("same", "noise") if counts[name]]
    unchanged = () if everything or not hidden else (f"{', '.join(hidden)}: --all shows them",)
    ratio = "" if view.ratio is None else f", {view.ratio:.2f} times as long"
    notes = (
        *unchanged,
        f"all calls: {took(view.before_ns)} before, {took(view.after_ns)} after{ratio}",
        f"compared by {view.measure}, from {view.threshold:g} times on",
        f"calls that take less than {percent(view.smallest_share)} of the time are noise",
    )
    columns = (*_one_column(view.by, view.by), "before", "after", "ratio", "implementation")
    return Listing(columns, tuple(groups), notes, frozenset(marked))


def _one_column(by: tuple[str, ...], values: tuple[str, ...]) -> tuple[str, ...]:
    """Return names or values with what was asked for behind the operation: "convolution bwd_w"."""
    if not {"operation", "asked"} <= set(by):
        return values
    place, behind = by.index("operation"), by.index("asked")
    joined = "call" if values is by else f"{values[place]} {values[behind]}".rstrip()
    told = [*values[:place], joined, *values[place + 1 :]]
    del told[behind]
    return tuple(told)


def _change(one: Change, by: tuple[str, ...], measure: str) -> tuple[str, ...]:
    before, after = one.implementation_before, one.implementation_after
    both = one.before is not None and one.after is not None
    kernel = f"{before or '-'} → {after or '-'}" if both and before != after else before or after
    field = f"{measure}_ns"
    return (
        *(_text(value) or "-" for value in _one_column(by, one.values)),
        _time(getattr(one.before, field, None)),
        _time(getattr(one.after, field, None)),
        "" if one.ratio is None else f"{one.ratio:.2f}",
        _text(kernel),
    )


def _repro(view: Repro) -> Listing:
    groups = []
    for one in view.calls:
        said = f"{_text(one.shape)}: {times(one.count, 'call')}, {took(one.total_ns)}"
        rows = [("call", said.removeprefix(": "))]
        # All of it, since it is to be copied.
        rows += [(one.tool, line) for line in one.text.rstrip("\n").split("\n") if line]
        rows += [("note", _text(note)) for note in one.notes]
        groups.append(Group(_text(one.operation), tuple(rows), one.operation))
    more = view.groups - len(view.calls)
    return Listing(("", ""), tuple(groups), (f"and {more:,} more",) if more else ())


_OF: dict[type, Callable[[Any], Listing]] = {
    Summary: _summary,
    Findings: _findings,
    DispatchView: _dispatch,
    Timeline: _timeline,
    Roofline: _roofline,
    Repro: _repro,
}
