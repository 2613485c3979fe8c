"""The views of a trace as text: lists for people, and what programs read."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch

from mlbackends.base.errors import counted
from mlbackends.base.tables import table
from mlbackends.model import trace_views
from mlbackends.tracing.finder import percent, took
from mlbackends_cli import formats
from mlbackends_cli.charts.plot import short_number
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import Group, Listing, fitting_widths, one_line, shortened
from mlbackends_cli.trace.rows import ROWS

_TITLES = table(os.path.join(os.path.dirname(__file__), "options.toml"))["titles"]
#: Views whose rows are cut here; the others come with the rows that were asked for.
_CUT = frozenset({"dispatch", "diff"})
_OF_COLUMNS = frozenset({"summary", "roofline", "diff"})
_LONGEST = 200
_CHANGED = ("slower", "faster", "new", "gone")
_UNCHANGED = ("noise", "same")


def printed(
    views: Mapping[str, trace_views.AnyView],
    form: str,
    page: Page,
    top: int = 0,
    *,
    everything: bool = False,
) -> str:
    """Return views in a format.

    top: the largest number of rows per group, in lists; 0 for all. everything: unchanged calls too.
    Several views have titles, in one record names.
    """
    if form in ROWS:
        return "".join(map(ROWS[form], views.values()))
    if not formats.has(form, "listing"):
        whole = next(iter(views.values())) if len(views) == 1 else dict(views)
        return formats.text(form, "record", whole, page)
    parts = []
    for name, view in views.items():
        found = listing(view, everything=everything)
        groups = found.groups
        if isinstance(view, trace_views.Findings) and 0 < top < len(groups):
            notes = (*found.notes, f"{len(groups) - top:,} more; --top 0 shows all")
            found = found._replace(groups=groups[:top], notes=notes)
        # "1 more" would be as long as the row that it replaces.
        elif top and name in _CUT and any(len(group.rows) > top + 1 for group in groups):
            more = [f"{len(group.rows) - top:,} more" for group in groups]
            shorter = tuple(
                group._replace(rows=(*group.rows[:top], (rest, *("" for _ in group.rows[0][1:]))))
                if len(group.rows) > top + 1
                else group
                for group, rest in zip(groups, more, strict=True)
            )
            found = found._replace(groups=shorter, notes=(*found.notes, "--top 0 shows all rows"))
        if form == "table" and name in _OF_COLUMNS:
            found = narrowed(found, page)
        if isinstance(view, trace_views.Difference):  # at the end, where it is read first
            found = found._replace(notes=(*found.notes, verdict(view)))
        text = formats.text(form, "listing", found, page).lstrip("\n")
        if len(views) > 1:
            title = f"## {_TITLES[name]}" if form == "markdown" else _TITLES[name]
            title = f"\033[1m{title}\033[0m" if form == "table" and page.color else title
            text = f"{title}\n{text}"
        parts.append(text)
    return "\n".join(parts)


def listing(view: trace_views.AnyView, *, everything: bool = False) -> Listing:
    """Return a view as a list. everything: of a comparison, also what did not change."""
    if isinstance(view, trace_views.Difference):
        return comparison(view, everything=everything)
    return _listing(view)


@singledispatch
def _listing(view: trace_views.AnyView) -> Listing:
    raise TypeError(view)


def _text(text: str) -> str:
    return one_line(shortened(text, _LONGEST))


def _time(duration: float | None) -> str:
    return "" if duration is None else took(duration)


@_listing.register
def _(view: trace_views.Summary) -> Listing:
    # A column that would be empty, as MKL's implementation, is left out.
    used = [
        place
        for place, _ in enumerate(view.by)
        if any(row.values[place] for row in view.rows) or len(view.by) == 1
    ]
    columns = [*(view.by[place] for place in used), "calls", "time", "share", "cumulative"]
    columns += ["mean", "median", "min", "max", "±", "GFLOP/s", "GB/s"]
    rows = [(*(_text(row.values[place]) or "-" for place in used), *_numbers(row)) for row in view.rows]
    if not used:
        columns, rows = ["", *columns], [("all", *row) for row in rows]
    if view.others is not None:
        more = f"{view.groups - len(view.rows):,} more"
        rows.append((more, *("" for _ in used[1:]), *_numbers(view.others)))
    notes = [f"{counted(view.count, 'call')}, {took(view.total_ns)}"]
    notes += [
        f"not counted: {part.reason}: {counted(part.count, 'line')}"
        + (f", {took(part.total_ns)}" if part.total_ns else "")
        for part in view.uncounted
    ]
    return Listing(tuple(columns), (Group("", tuple(rows)),), tuple(notes))


def _numbers(row: trace_views.SummaryRow) -> tuple[str, ...]:
    has_time = row.mean_ns is not None
    return (
        f"{row.count:,}",
        took(row.total_ns) if has_time else "",
        percent(row.share) if has_time else "",
        percent(row.cumulative_share),
        *map(_time, (row.mean_ns, row.median_ns, row.min_ns, row.max_ns)),
        "" if row.deviation is None else f"{row.deviation:.0%}",
        *("" if rate is None else short_number(rate) for rate in (row.gflops, row.gigabytes_per_second)),
    )


@_listing.register
def _(view: trace_views.Findings) -> Listing:
    groups = []
    for finding in view.findings:
        rows = [("seen", _text(finding.seen)), ("why", finding.why), ("do", finding.action)]
        rows += [("line", _text(line)) for line in finding.evidence]
        shown = tuple((word, text) for word, text in rows if text)
        groups.append(Group(f"{finding.severity}: {finding.code}", shown, finding.code))
    marked = frozenset(
        (number, 0) for number, finding in enumerate(view.findings) if finding.severity in {"high", "medium"}
    )
    notes = () if view.findings else (f"no findings ({len(view.codes)} checks)",)
    return Listing(("", ""), tuple(groups), notes, marked)


@_listing.register
def _(view: trace_views.DispatchView) -> Listing:
    groups = []
    for operation in view.operations:
        reasons = ", ".join(f"{name} ({count:,})" for name, count in operation.chosen)
        title = f"{operation.operation}: {counted(operation.count, 'refusal')}"
        title += f"; chosen: {reasons}" if reasons else ""
        rows = []
        for refusal in operation.refusals:
            name = _text(refusal.implementation) or "-"
            rows.append((name, f"{refusal.count:,}", _text(refusal.reason), _text(refusal.place)))
        groups.append(Group(_text(title), tuple(rows), operation.operation))
    notes = [] if view.count else ["no refusals: trace with --level dispatch"]
    if view.left_out:
        notes.append(f"{view.left_out:,} more kinds of refusal were left out")
    return Listing(("implementation", "times", "why not", "where"), tuple(groups), tuple(notes))


@_listing.register
def _(view: trace_views.Roofline) -> Listing:
    rows = tuple(
        (
            point.operation,
            _text(point.shape),
            point.dtype,
            _text(point.implementation),
            f"{point.count:,}",
            took(point.total_ns),
            *map(short_number, (point.intensity, point.gflops, point.gigabytes_per_second)),
        )
        for point in view.points
    )
    columns = ("operation", "shape", "dtype", "implementation", "calls", "time", "FLOP/byte")
    notes = [f"{counted(view.left_out, 'call')} left out: work not known"] if view.left_out else []
    if roof := view.roof:
        speeds = f"{short_number(roof.gflops)} GFLOP/s, {short_number(roof.gigabytes_per_second)} GB/s"
        notes.append(f"this machine just reached {speeds} ({roof.by})")
    return Listing((*columns, "GFLOP/s", "GB/s"), (Group("", rows),), tuple(notes))


# ---- a comparison --------------------------------------------------------------------------


def uncompared(view: trace_views.Difference) -> str:
    """Return why two traces have nothing in common that could be compared; "" where they have."""
    if any(change.before is not None and change.after is not None for change in view.changes):
        return ""
    counts = {"before": view.before_count, "after": view.after_count}
    empty = [name for name, count in counts.items() if not count]
    if empty:
        return f"no call in the trace {' and the trace '.join(empty)}"
    return "no call is in both traces"


def verdict(view: trace_views.Difference) -> str:
    """Return how a comparison ended in one line."""
    counts = Counter(change.verdict for change in view.changes)
    numbers = ", ".join(f"{counts[name]:,} {name}" for name in _CHANGED)
    if view.failed:
        return f"{numbers}: fail"
    return f"{numbers}: {'nothing was compared' if uncompared(view) else 'pass'}"


def comparison(view: trace_views.Difference, *, everything: bool) -> Listing:
    """Return a comparison as a list; everything: also what did not change."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    for change in view.changes:
        before, after = change.implementation_before, change.implementation_after
        kernel = before or after
        if change.before is not None and change.after is not None and before != after:
            kernel = f"{before or '-'} → {after or '-'}"
        values = (_text(value) or "-" for value in _joined(view.by, change.values))
        sides = (getattr(side, f"{view.measure}_ns", None) for side in (change.before, change.after))
        ratio = "" if change.ratio is None else f"{change.ratio:.2f}"
        row = (*values, *map(_time, sides), ratio, _text(kernel))
        rows.setdefault(change.verdict, []).append(row)
    shown = [name for name in (*_CHANGED, *(_UNCHANGED if everything else ())) if name in rows]
    groups = [Group(f"{name} ({len(rows[name])})", tuple(rows[name]), name) for name in shown]
    # They come first.
    marked = frozenset((0, number) for number, _ in enumerate(rows.get("slower", ())))
    hidden = [f"{len(rows[name]):,} {name}" for name in ("same", "noise") if name in rows]
    unchanged = () if everything or not hidden else (f"{', '.join(hidden)}: --all shows them",)
    ratio = "" if view.ratio is None else f", {view.ratio:.2f} times as long"
    changed = (
        f"{setting.name}: {' and '.join(setting.before)} before, {' and '.join(setting.after)} after"
        for setting in view.settings
    )
    unsteady = (("before", view.unsteady_before), ("after", view.unsteady_after))
    notes = (
        *unchanged,
        *map(_text, changed),
        *(f"unsteady {side}: {steadiness}" for side, steadiness in unsteady if steadiness),
        f"all calls: {took(view.before_ns)} before, {took(view.after_ns)} after{ratio}",
        f"compared by {view.measure}, from {view.threshold:g} times on",
        f"calls that take less than {percent(view.smallest_share)} of the time are noise",
    )
    columns = (*_joined(view.by, view.by), "before", "after", "ratio", "implementation")
    return Listing(columns, tuple(groups), notes, marked)


def _joined(by: Sequence[str], values: Sequence[str]) -> Sequence[str]:
    """Return names or values with `parameters` behind the operation: "convolution bwd_w"."""
    if not {"operation", "parameters"} <= set(by):
        return values
    place, behind = by.index("operation"), by.index("parameters")
    joined = list(values)
    joined[place] = "call" if values is by else f"{values[place]} {values[behind]}".rstrip()
    del joined[behind]
    return joined


# ---- a page that is narrower than a table: fewer columns, then shorter words in them --------------

_FIRST_TO_GO = ("±", "cumulative", "GB/s", "tracer", "min", "max", "median", "mean", "GFLOP/s")
_NUMERIC = frozenset(
    {*_FIRST_TO_GO, "calls", "time", "share", "before", "after", "ratio", "FLOP/byte"} - {"tracer"}
)
_GAP = 2
Row = tuple[str, ...]
_LEAST = 10
#: The fewest columns that a word keeps, if the page allows it.
_LEAST_OF = {"dtype": 8, "shape": 12, "implementation": 14, "call": 13}
_ARROW = " → "
_ALIKE = 4


def narrowed(listing: Listing, page: Page) -> Listing:
    """Make a table fit the page side by side, and note what that cost; unchanged where nothing helps.

    Columns go, the least important first, then the middles of long words. Numbers stay whole and
    are right-aligned.
    """
    # A page without "→" and "…" gets "->" for the one: a column more.
    width = page.width if page.unicode else page.width - 1
    # Below titles the first column is moved in, and its name counts too.
    indent = 2 if any(group.title for group in listing.groups) else 0
    widths = dict(enumerate(_cell_widths(listing, indent)))
    dropped = []
    for name in _FIRST_TO_GO:
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
            break
        if name in listing.columns and len(widths) > 1:
            del widths[listing.columns.index(name)]
            dropped.append(name)
    first, *others = widths
    # The row of the remaining groups is labelled in its first cell.
    shortened = _mapped(listing, lambda row: (row[first] or row[0], *(row[other] for other in others)))
    names = shortened.columns
    wide = _cell_widths(shortened, indent)
    room = width - _GAP * (len(wide) - 1)
    least = [
        each if name in _NUMERIC else min(each, max(len(name), _LEAST_OF.get(name, _LEAST)))
        for name, each in zip(names, wide, strict=True)
    ]
    least[0] = min(wide[0], least[0] + indent)
    shrunk = fitting_widths(wide, least, room)
    if sum(shrunk) <= room:
        dropped += ["whole names"] if shrunk != wide else []
        shrunk[0] -= indent

        def fitted(row: Row) -> Row:
            return tuple(
                cell.rjust(width) if name in _NUMERIC else middle_left_out(cell, width)
                for cell, width, name in zip(row, shrunk, names, strict=True)
            )

        shortened = _mapped(shortened, fitted)
    if not dropped:
        return shortened
    return shortened._replace(
        notes=(*shortened.notes, f"wider pages have more columns: {', '.join(dropped)}")
    )


def _mapped(listing: Listing, change: Callable[[Row], Row]) -> Listing:
    """Return a listing with the names of the columns and each row changed."""
    groups = (group._replace(rows=tuple(map(change, group.rows))) for group in listing.groups)
    return listing._replace(columns=change(listing.columns), groups=tuple(groups))


def _cell_widths(listing: Listing, indent: int) -> list[int]:
    rows = [listing.columns, *(row for group in listing.groups for row in group.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] += indent
    return widths


def middle_left_out(text: str, width: int) -> str:
    """Return a text cut to `width` columns: "brg_ma…_bf16"; of "a → b" each half is shortened for itself.

    Halves with the same end lose their ends, since the beginnings differ.
    """
    if len(text) <= width:
        return text
    before, arrow, after = text.partition(_ARROW)
    if not arrow or width <= len(_ARROW) + 1:
        return _cut(text, width, width // 2)
    room = width - len(_ARROW)
    left = min(max(room // 2, room - len(after)), len(before))
    right = room - left
    if before[-_ALIKE:] == after[-_ALIKE:]:
        return f"{_cut(before, left, left - 1)}{_ARROW}{_cut(after, right, right - 1)}"
    return f"{_cut(before, left, left // 2)}{_ARROW}{_cut(after, right, right // 2)}"


def _cut(text: str, width: int, head: int) -> str:
    """Return a text cut to `width` columns, of which `head` are its beginning."""
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"
