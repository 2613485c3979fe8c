"""One page about a trace that needs nothing but itself: numbers, findings, plots and tables, no script.

contents = Contents()
for record in records:
contents.add(record)
page(contents.result(), title="train.log")
"""

from msgspec import Struct

from mlbackends.model.trace import Header, Malformed, Record, Text
from mlbackends.model.trace_views import (
    DispatchView,
    Finding,
    Findings,
    Refused,
    Roofline,
    Summary,
    SummaryRow,
    Timeline,
)
from mlbackends.tracing.finder import Machine, percent, times, took
from mlbackends.tracing.viewing import begin
from mlbackends_cli.plots.bars import bars
from mlbackends_cli.plots.colours import Colours
from mlbackends_cli.plots.lanes import lanes
from mlbackends_cli.plots.points import points
from mlbackends_cli.plots.scale import amount
from mlbackends_cli.web.document import document
from mlbackends_cli.web.elements import element, escaped, section, words
from mlbackends_cli.web.findings_style import FINDINGS_STYLE
from mlbackends_cli.web.style import STYLE
from mlbackends_cli.web.trace_style import TRACE_STYLE

_WIDE, _NARROW = 1100, 360
_MOST_CALLS = 60
_MOST_REFUSALS = 40
_NAMES = {"mkl": "MKL", "onednn": "oneDNN"}


class TraceContents(Struct, frozen=True, kw_only=True):
    """What is on a page. versions: of the libraries that spoke, as "oneDNN 3.6.2"."""

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


class Contents:
    """Collects what is on a page, from one walk through the records."""

    def __init__(self, machine: Machine | None = None) -> None:
        self._collectors = {
            "operations": begin("summary", by=("operation",)),
            "groups": begin("summary", by=("operation", "implementation", "dtype")),
            "calls": begin(
                "summary", by=("operation", "shape", "dtype", "implementation"), top=_MOST_CALLS
            ),
            "findings": begin("findings", machine=machine),
            "timeline": begin("timeline"),
            "roofline": begin("roofline"),
            "dispatch": begin("dispatch"),
        }
        self._adders = [each.add for each in self._collectors.values()]
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
        for add in self._adders:
            add(record)

    def result(self) -> TraceContents:
        """Return what came in so far."""
        made = {name: each.result() for name, each in self._collectors.items()}
        return TraceContents(
            versions=tuple(self._versions),
            lines=self._lines,
            text_lines=self._text,
            unreadable=self._unreadable,
            **made,  # type: ignore[arg-type]
        )


def page(contents: TraceContents, title: str, *, tool: str = "", created: str = "") -> str:
    """Return the page. title: the command or file; tool: "backends 1.2.3"; created: a time, as text."""
    colours = Colours(row.values[0] for row in contents.operations.rows)
    parts = [
        _header(contents, title, created),
        "<main>\n",
        section("look-at", "Look at", _findings(contents.findings)),
        section("where", "Where the time went", _twice(bars, contents.groups, colours, "bars")),
        section("when", "When", _twice(lanes, contents.timeline, colours, "lanes")),
        section(
            "work", "Work against traffic", _twice(points, contents.roofline, colours, "points")
        ),
        section("calls", "Calls", _calls(contents.calls)),
        section("refused", "Why not faster", _refused(contents.dispatch)),
        section("uncounted", "In no total", _uncounted(contents.calls)),
        "</main>\n",
        _footer(contents, tool),
    ]
    return document(title, "".join(parts), f"{STYLE}\n{FINDINGS_STYLE}\n{TRACE_STYLE}")


def _header(contents: TraceContents, title: str, created: str) -> str:
    said = [", ".join(contents.versions), f"as of {created}" if created else ""]
    calls = contents.operations
    numbers = [
        (took(calls.total_ns) if calls.total_ns else "-", "in calls that are counted"),
        (f"{calls.count:,}", "calls"),
        (f"{contents.calls.groups:,}", "different calls, by shape and kernel"),
        *([(_best(contents.roofline), "GFLOP/s at best")] if contents.roofline.points else []),
        (f"{len(contents.findings.found)}", "things to look at"),
    ]
    boxes = [
        element("div", words("b", number), words("span", meaning)) for number, meaning in numbers
    ]
    return (
        element(
            "header",
            words("h1", title),
            words("p", " · ".join(each for each in said if each), "sub"),
            element("div", *boxes, kind="key"),
        )
        + "\n"
    )


def _best(roofline: Roofline) -> str:
    return amount(max(point.gflops for point in roofline.points))


def _twice(draw: object, view: object, colours: Colours, name: str) -> str:
    """Return a plot twice: for a page that is wide, and for one that is not."""
    assert callable(draw)
    wide = draw(view, colours, _WIDE, f"{name}-wide")
    narrow = draw(view, colours, _NARROW, f"{name}-narrow")
    if not wide:
        return ""
    return (
        element("figure", wide, kind="picture-wide")
        + "\n"
        + element("figure", narrow, kind="picture-narrow")
    )


def _findings(findings: Findings) -> str:
    return (
        element("ul", *(_finding(one) for one in findings.found), kind="findings")
        if findings.found
        else ""
    )


def _finding(one: Finding) -> str:
    evidence = ""
    if one.evidence:
        lines = words("pre", "\n".join(one.evidence))
        evidence = element("details", words("summary", "what shows it"), lines)
    return element(
        "li",
        words("span", one.severity, f"severity {one.severity}"),
        words("strong", one.seen),
        " ",
        words("code", f"[{one.code}]", "dim"),
        words("p", one.why) if one.why else "",
        words("p", one.action, "hint") if one.action else "",
        evidence,
        kind=f"is-{one.severity}",
    )


_COLUMNS = ("share", "time", "calls", "GFLOP/s", "GB/s", "mean", "median", "min", "max", "±")


def _calls(summary: Summary) -> str:
    if not summary.rows:
        return ""
    # MKL tells no implementation: a column that would be empty is none.
    told = [
        place for place, _ in enumerate(summary.by) if any(r.values[place] for r in summary.rows)
    ]
    body = [
        [
            *(
                words("td", row.values[place], "long" if len(row.values[place]) > 28 else "")
                for place in told
            ),
            *_cells(row),
        ]
        for row in summary.rows
    ]
    more = ""
    if summary.others is not None:
        said = (
            f"and {summary.groups - len(summary.rows):,} more, {took(summary.others.total_ns)},"
            f" {percent(summary.others.share)} of the time"
        )
        more = words("p", said, "dim")
    return (
        element(
            "div", _table(tuple(summary.by[place] for place in told), _COLUMNS, body), kind="wide"
        )
        + more
    )


def _table(
    texts: tuple[str, ...], numbers: tuple[str, ...], body: list[list[str]], kind: str = "numbers"
) -> str:
    """Return a table whose titles stand above what they name: texts to the left, numbers to the right."""
    titles = [element("th", escaped(title), scope="col") for title in texts]
    titles += [element("th", escaped(title), kind="number", scope="col") for title in numbers]
    rows = "".join(element("tr", *cells) for cells in body)
    top = element("thead", element("tr", *titles))
    return element("table", top, element("tbody", rows), kind=kind)


def _cells(row: SummaryRow) -> list[str]:
    durations = (row.mean_ns, row.median_ns, row.min_ns, row.max_ns)
    rates = (row.gflops, row.gigabytes_per_second)
    told = [
        percent(row.share),
        took(row.total_ns),
        f"{row.count:,}",
        *("" if rate is None else amount(rate) for rate in rates),
        *("" if duration is None else took(duration) for duration in durations),
        "" if row.deviation is None else f"{row.deviation:.0%}",
    ]
    return [words("td", text, "number") for text in told]


def _refused(view: DispatchView) -> str:
    return "".join(_operation(one) for one in view.operations)


def _operation(one: Refused) -> str:
    taken = ", ".join(f"{name} ({count:,})" for name, count in one.taken[:6])
    title = [
        words("strong", one.operation or "?"),
        words("span", f"{times(one.count, 'refusal')}", "dim"),
        words("span", f"taken: {taken}", "dim") if taken else "",
    ]
    body = [
        [
            words("td", each.implementation),
            words("td", each.reason, "long"),
            words("td", each.place, "long"),
            words("td", f"{each.count:,}", "number"),
        ]
        for each in one.refusals[:_MOST_REFUSALS]
    ]
    more = len(one.refusals) - _MOST_REFUSALS
    table = _table(("implementation", "why not", "where"), ("times",), body)
    rest = words("p", f"and {more:,} more kinds", "dim") if more > 0 else ""
    inside = element("div", element("div", table, kind="wide"), rest, kind="inside")
    return f"<details>{element('summary', *title)}{inside}</details>\n"


def _uncounted(summary: Summary) -> str:
    body = [
        [
            words("td", one.why, "long"),
            words("td", f"{one.count:,}", "number"),
            words("td", took(one.total_ns), "number"),
        ]
        for one in summary.uncounted
    ]
    return _table(("why",), ("lines", "time"), body, "numbers few") if body else ""


def _footer(contents: TraceContents, tool: str) -> str:
    told = {
        "lines of the libraries": f"{contents.lines:,}",
        "lines of the program": f"{contents.text_lines:,}" if contents.text_lines else "",
        "could not be read": f"{contents.unreadable:,}" if contents.unreadable else "",
        "made by": tool,
    }
    rows = [words("dt", name) + words("dd", value) for name, value in told.items() if value]
    return element("footer", element("dl", *rows)) + "\n"
