"""One page about a trace: numbers, findings, a chart and tables."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mlbackends.base.errors import counted
from mlbackends.model.trace import Header, Malformed, Record, Text
from mlbackends.model.trace_views import Finding, Refused, Roofline, Summary
from mlbackends.tracing import LIBRARIES
from mlbackends.tracing.finder import percent, took
from mlbackends.tracing.machine import UNKNOWN, Machine
from mlbackends.tracing.viewing import begin
from mlbackends_cli.charts.plot import short_number
from mlbackends_cli.charts.svg import Colours
from mlbackends_cli.text.elements import (
    bar,
    document,
    element,
    finding,
    folded,
    footer,
    header,
    scrolled,
    section,
    table,
    words,
)
from mlbackends_cli.trace.chart import points
from mlbackends_cli.trace.listings import listing

_WIDE, _NARROW = 1100, 360
_MOST_BARS, _MOST_CALLS = 15, 60
_MOST_REFUSALS = 40
_RATES = ("time", "calls", "GFLOP/s", "GB/s")
_ORDER = "The longest first."


class Contents:
    """What is on a page, collected in one walk through the records.

    title: the command or file. machine: the one that the trace is of. tool: such as "backends 1.2.3".
    created: a time.
    collectors: what a `Walk` gives records to, in place of `add`; `text_lines` is then to be set.
    """

    def __init__(self, title: str, machine: Machine = UNKNOWN, *, tool: str = "", created: str = "") -> None:
        self.title, self.tool, self.created = title, tool, created
        by_call = ("operation", "shape", "dtype", "implementation")
        self._collectors: dict[str, Any] = {
            "calls": begin("summary", by=by_call, top=_MOST_CALLS),
            "findings": begin("findings", machine=machine),
            "roofline": begin("roofline", roof=machine.roof),
            "dispatch": begin("dispatch"),
        }
        self.counts = _Counts()
        self.collectors: tuple[Any, ...] = (self.counts, *self._collectors.values())
        self.text_lines = 0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, Text):
            self.text_lines += 1
            return
        for collector in self.collectors:
            collector.add(record)

    def views(self) -> dict[str, Any]:
        """Return the view of each kind of what came in so far."""
        groups: Any = begin("summary", by=("operation", "implementation", "dtype"))
        groups.add_groups(self._collectors["calls"])
        return {
            name: collector.result() for name, collector in {**self._collectors, "groups": groups}.items()
        }


class _Counts:
    """How many lines of libraries there were, unreadable ones too, and the versions that printed them."""

    def __init__(self) -> None:
        self.versions: dict[str, None] = {}
        self.lines = self.unreadable = 0

    def add(self, record: Record) -> None:
        self.lines += 1
        self.unreadable += isinstance(record, Malformed)
        if isinstance(record, Header) and len(self.versions) < 20:
            self.versions[f"{LIBRARIES.get(record.tracer, record.tracer)} {record.version}"] = None

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        del record, durations
        self.lines += count


def trace_page(contents: Contents) -> str:
    """Return the page."""
    views = contents.views()
    groups, calls, roofline = views["groups"], views["calls"], views["roofline"]
    findings = views["findings"].findings
    operations: Counter[str] = Counter()
    for row in groups.rows:
        operations[row.values[0]] += row.total_ns
    colours = Colours(name for name, _ in operations.most_common())
    numbers = [
        (took(calls.total_ns) if calls.total_ns else "-", "in calls that are counted"),
        (f"{calls.count:,}", "calls"),
        (f"{calls.groups:,}", "different calls, by shape and kernel"),
    ]
    if roofline.points:
        best = max(point.gflops for point in roofline.points)
        numbers.append((short_number(best), "GFLOP/s at best"))
    numbers.append((f"{len(findings)}", "findings"))
    about = [
        ", ".join(contents.counts.versions),
        f"as of {contents.created}" if contents.created else "",
    ]
    found = element("ul", *map(_finding, findings), kind="findings") if findings else ""
    uncounted = [
        [
            _cell(part.reason),
            _number(f"{part.count:,}"),
            _number(took(part.total_ns) if part.total_ns else ""),
        ]
        for part in calls.uncounted
    ]
    rest = table(("why",), uncounted, "numbers few", numbers=("lines", "time"))
    origin = {
        "library lines": f"{contents.counts.lines:,}",
        "program lines": f"{contents.text_lines:,}" if contents.text_lines else "",
        "could not be read": f"{contents.counts.unreadable:,}" if contents.counts.unreadable else "",
        "made by": contents.tool,
    }
    body = [
        header(contents.title, about, numbers),
        "<main>\n",
        section("look-at", "Look at", found),
        section("where", "Where the time went", _groups(groups, colours)),
        section("work", "Work against traffic", _work(roofline, colours)),
        section("calls", "Calls", _calls(calls)),
        section("refused", "Why not faster", *map(_refused, views["dispatch"].operations)),
        section("uncounted", "Not counted", rest),
        "</main>\n",
        footer(origin),
    ]
    return document(contents.title, "".join(body), ("page", "findings", "trace", "../charts/charts"))


def _work(roofline: Roofline, colours: Colours) -> str:
    """Return the chart twice: for a page that is wide, and for one that is not."""
    charts = {
        f"picture-{size}": points(roofline, colours, width, f"points-{size}")
        for size, width in (("wide", _WIDE), ("narrow", _NARROW))
    }
    return "\n".join(element("figure", chart, kind=kind) for kind, chart in charts.items() if chart)


def _finding(item: Finding) -> str:
    evidence = ""
    if item.evidence:
        lines = words("pre", "\n".join(item.evidence))
        evidence = element("details", words("summary", "what shows it"), lines)
    return finding(
        item.severity,
        item.seen,
        item.code,
        words("p", item.why) if item.why else "",
        words("p", item.action, "hint") if item.action else "",
        evidence,
    )


def _groups(summary: Summary, colours: Colours) -> str:
    """Return the groups that took longest, each with a bar against all of the time."""
    shown = [row for row in summary.rows[:_MOST_BARS] if row.total_ns]
    bars = [bar(row.share, colours.of(row.values[0]), percent(row.share)) for row in shown]
    body = []
    for row, share in zip(shown, bars, strict=True):
        rates = (row.gflops, row.gigabytes_per_second)
        numbers = ["" if row.mean_ns is None else took(row.total_ns), f"{row.count:,}"]
        numbers += ["" if rate is None else short_number(rate) for rate in rates]
        body.append([share, *(words("td", value) for value in row.values), *map(_number, numbers)])
    if not body:
        return ""
    longest = table(("share", *summary.by), body, "numbers", numbers=_RATES, caption=_ORDER)
    found = scrolled(longest, "Where the time went")
    if (more := summary.groups - len(shown)) > 0:
        others = (*summary.rows[len(shown) :], *filter(None, [summary.others]))
        left = sum(row.total_ns for row in others)
        share = percent(left / summary.total_ns if summary.total_ns else 0)
        found += words("p", f"and {more:,} more, {took(left)}, {share} of the time", "dim")
    return found


def _calls(summary: Summary) -> str:
    """Return the table that `listings` has, numbers to the right."""
    found = listing(summary)
    at = found.columns.index("calls")
    body = [
        [
            *(words("td", cell, "long" if len(cell) > 28 else "") for cell in row[:at]),
            *map(_number, row[at:]),
        ]
        for row in found.groups[0].rows
    ]
    calls = table(found.columns[:at], body, "numbers", numbers=found.columns[at:], caption=_ORDER)
    return scrolled(calls, "Calls") if body else ""


def _refused(operation: Refused) -> str:
    reasons = ", ".join(f"{name} ({count:,})" for name, count in operation.chosen[:6])
    title = [
        words("strong", operation.operation or "?"),
        words("span", counted(operation.count, "refusal"), "dim"),
        words("span", f"chosen: {reasons}", "dim") if reasons else "",
    ]
    body = [
        (
            words("td", refusal.implementation),
            _cell(refusal.reason),
            _cell(refusal.place),
            _number(f"{refusal.count:,}"),
        )
        for refusal in operation.refusals[:_MOST_REFUSALS]
    ]
    more = len(operation.refusals) - _MOST_REFUSALS
    refusals = table(("implementation", "why not", "where"), body, "numbers", numbers=("times",))
    rest = words("p", f"and {more:,} more kinds", "dim") if more > 0 else ""
    return folded(title, scrolled(refusals, f"Refusals of {operation.operation}"), rest)


def _cell(text: str) -> str:
    return words("td", text, "long")


def _number(text: str) -> str:
    return words("td", text, "number")
