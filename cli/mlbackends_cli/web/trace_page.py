"""One page about a trace: numbers, findings, charts and tables."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from mlbackends.model.trace import Header, Malformed, Record, Text
from mlbackends.model.trace_views import (
    DispatchView,
    Finding,
    Findings,
    Roofline,
    Summary,
    SummaryRow,
    Timeline,
)
from mlbackends.tracing.finder import percent, times, took
from mlbackends.tracing.viewing import begin
from mlbackends_cli.charts.axes import short_number
from mlbackends_cli.charts.svg import Colours
from mlbackends_cli.charts.trace import bars, lanes, points
from mlbackends_cli.web.elements import (
    document,
    element,
    finding,
    folded,
    footer,
    header,
    section,
    table,
    words,
)

_WIDE, _NARROW = 1100, 360
_MOST_CALLS = 60
_MOST_REFUSALS = 40
_NAMES = {"mkl": "MKL", "onednn": "oneDNN"}
_COLUMNS = ("share", "time", "calls", "GFLOP/s", "GB/s", "mean", "median", "min", "max", "±")


class TraceContents(Struct, frozen=True, kw_only=True):
    """What is on a page. versions: of the libraries that printed, as "oneDNN 3.6.2".

    title: the command or file. tool: "backends 1.2.3". created: a time, as text.
    """

    operations: Summary
    groups: Summary
    calls: Summary
    findings: Findings
    timeline: Timeline
    roofline: Roofline
    dispatch: DispatchView
    versions: tuple[str, ...] = ()
    lines: int = 0
    text_lines: int = 0
    unreadable: int = 0
    title: str = ""
    tool: str = ""
    created: str = ""


class Contents:
    """Collects what is on a page, from one walk through the records."""

    def __init__(self, capability: str = "") -> None:
        by_call = ("operation", "shape", "dtype", "implementation")
        self._collectors = {
            "operations": begin("summary", by=("operation",)),
            "groups": begin("summary", by=("operation", "implementation", "dtype")),
            "calls": begin("summary", by=by_call, top=_MOST_CALLS),
            "findings": begin("findings", capability=capability),
            "timeline": begin("timeline"),
            "roofline": begin("roofline"),
            "dispatch": begin("dispatch"),
        }
        self._versions: dict[str, None] = {}
        self._lines = self._text = self._unreadable = 0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, Text):
            self._text += 1
            return
        self._lines += 1
        self._unreadable += isinstance(record, Malformed)
        if isinstance(record, Header) and len(self._versions) < 20:
            self._versions[f"{_NAMES.get(record.tracer, record.tracer)} {record.version}"] = None
        for each in self._collectors.values():
            each.add(record)

    def result(self, title: str, *, tool: str = "", created: str = "") -> TraceContents:
        """Return what came in so far."""
        views: dict[str, Any] = {name: each.result() for name, each in self._collectors.items()}
        return TraceContents(
            versions=tuple(self._versions),
            lines=self._lines,
            text_lines=self._text,
            unreadable=self._unreadable,
            title=title,
            tool=tool,
            created=created,
            **views,
        )


def trace_page(contents: TraceContents) -> str:
    """Return the page."""
    operations, roofline = contents.operations, contents.roofline
    colours = Colours(row.values[0] for row in operations.rows)
    numbers = [
        (took(operations.total_ns) if operations.total_ns else "-", "in calls that are counted"),
        (f"{operations.count:,}", "calls"),
        (f"{contents.calls.groups:,}", "different calls, by shape and kernel"),
    ]
    if roofline.points:
        best = max(point.gflops for point in roofline.points)
        numbers.append((short_number(best), "GFLOP/s at best"))
    numbers.append((f"{len(contents.findings.found)}", "things to look at"))
    about = [", ".join(contents.versions), f"as of {contents.created}" if contents.created else ""]
    findings = contents.findings.found
    found = element("ul", *map(_finding, findings), kind="findings") if findings else ""
    uncounted = [
        [_cell(one.why), _number(f"{one.count:,}"), _number(took(one.total_ns))]
        for one in contents.calls.uncounted
    ]
    body = [
        header(contents.title, about, numbers),
        "<main>\n",
        section("look-at", "Look at", found),
        section("where", "Where the time went", _twice(bars, contents.groups, colours)),
        section("when", "When", _twice(lanes, contents.timeline, colours)),
        section("work", "Work against traffic", _twice(points, roofline, colours)),
        section("calls", "Calls", _calls(contents.calls)),
        section("refused", "Why not faster", _refused(contents.dispatch)),
        section(
            "uncounted",
            "In no total",
            table(("why",), uncounted, "numbers few", numbers=("lines", "time")),
        ),
        "</main>\n",
        footer(
            {
                "lines of the libraries": f"{contents.lines:,}",
                "lines of the program": f"{contents.text_lines:,}" if contents.text_lines else "",
                "could not be read": f"{contents.unreadable:,}" if contents.unreadable else "",
                "made by": contents.tool,
            }
        ),
    ]
    return document(contents.title, "".join(body), ("page", "findings", "trace"))


def _twice(draw: Callable[..., str], view: object, colours: Colours) -> str:
    """Return a chart twice: for a page that is wide, and for one that is not."""
    name = draw.__name__
    wide = draw(view, colours, _WIDE, f"{name}-wide")
    narrow = draw(view, colours, _NARROW, f"{name}-narrow")
    if not wide:
        return ""
    figures = (("picture-wide", wide), ("picture-narrow", narrow))
    return "\n".join(element("figure", chart, kind=kind) for kind, chart in figures)


def _finding(one: Finding) -> str:
    evidence = ""
    if one.evidence:
        lines = words("pre", "\n".join(one.evidence))
        evidence = element("details", words("summary", "what shows it"), lines)
    return finding(
        one.severity,
        one.severity,
        one.seen,
        one.code,
        words("p", one.why) if one.why else "",
        words("p", one.action, "hint") if one.action else "",
        evidence,
    )


def _calls(summary: Summary) -> str:
    if not summary.rows:
        return ""
    # MKL names no implementation: a column that would be empty is left out.
    used = [i for i, _ in enumerate(summary.by) if any(row.values[i] for row in summary.rows)]
    body = [
        [
            *(words("td", row.values[i], "long" if len(row.values[i]) > 28 else "") for i in used),
            *_numbers(row),
        ]
        for row in summary.rows
    ]
    rest = ""
    if summary.others is not None:
        share = f"{took(summary.others.total_ns)}, {percent(summary.others.share)} of the time"
        rest = words("p", f"and {summary.groups - len(summary.rows):,} more, {share}", "dim")
    names = [summary.by[i] for i in used]
    return element("div", table(names, body, "numbers", numbers=_COLUMNS), kind="wide") + rest


def _numbers(row: SummaryRow) -> list[str]:
    durations = (row.mean_ns, row.median_ns, row.min_ns, row.max_ns)
    rates = (row.gflops, row.gigabytes_per_second)
    texts = [
        percent(row.share),
        took(row.total_ns),
        f"{row.count:,}",
        *("" if rate is None else short_number(rate) for rate in rates),
        *("" if duration is None else took(duration) for duration in durations),
        "" if row.deviation is None else f"{row.deviation:.0%}",
    ]
    return [_number(text) for text in texts]


def _refused(view: DispatchView) -> str:
    parts = []
    for one in view.operations:
        taken = ", ".join(f"{name} ({count:,})" for name, count in one.taken[:6])
        title = [
            words("strong", one.operation or "?"),
            words("span", times(one.count, "refusal"), "dim"),
            words("span", f"taken: {taken}", "dim") if taken else "",
        ]
        body = [
            [
                words("td", each.implementation),
                _cell(each.reason),
                _cell(each.place),
                _number(f"{each.count:,}"),
            ]
            for each in one.refusals[:_MOST_REFUSALS]
        ]
        more = len(one.refusals) - _MOST_REFUSALS
        heads = ("implementation", "why not", "where")
        refusals = table(heads, body, "numbers", numbers=("times",))
        rest = words("p", f"and {more:,} more kinds", "dim") if more > 0 else ""
        parts.append(folded(title, element("div", refusals, kind="wide"), rest))
    return "".join(parts)


def _cell(text: str) -> str:
    return words("td", text, "long")


def _number(text: str) -> str:
    return words("td", text, "number")
