"""The pages of `sdpa check` and `sdpa bench`: numbers for each problem, with a comparison of the backends."""

from collections.abc import Sequence
from math import prod

from mlbackends.model.benched import Benched
from mlbackends.model.checked import Checked, CheckedProblem, Ended, Result
from mlbackends.sdpa.verify.outcome import summary
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.chart import plots, sheet, short_title
from mlbackends_cli.attention.tables import (
    FASTEST,
    MARKS,
    Row,
    hardware_of,
    of_shown,
    rows,
    speed,
    state,
)
from mlbackends_cli.attention.tables import about as device_lines
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.elements import (
    bar,
    document,
    element,
    escaped,
    finding,
    folded,
    footer,
    header,
    items,
    key_numbers,
    scrolled,
    section,
    table,
    words,
)

#: Up to this number of problems, each is unfolded; of more, each is a line to unfold.
_OPEN = 4
#: Columns that would make a table wider than a laptop; the other formats have them.
_LEFT_OUT = {"backend", "spread", "relative", "error ratio", "launch"}
_BARS = {
    "median": "time relative to the slowest",
    "of peak": "share of the peak",
    "of limit": "error relative to its limit",
}
_STATES = {"good": "usable", "bad": "broken", "cannot": "absent", "open": "found"}
_Found = list[tuple[Result, Row]]


def check_page(checked: Checked, _page: Page) -> str:
    """Return the page of a check."""
    found = [(problem, rows(problem)) for problem in checked.problems]
    texts = tables.check_notes(checked)
    return _document(checked, "Attention, checked", found, tables.CHECK_COLUMNS, texts)


def bench_page(benched: Benched, _page: Page, base: str) -> str:
    """Return the page of a run, with its plots. base: the backend that the others are compared with."""
    found = [(problem.checked, tables.bench_rows(problem, benched, base)) for problem in benched.problems]
    texts, columns = tables.bench_notes(benched, base), tables.bench_columns(benched, base)
    shown = plots(benched)
    title = "Speed, and a roofline" if any(plot.roof for plot in shown) else "Speed"
    drawn = scrolled(element("figure", sheet(benched)), title) if shown else ""
    return _document(benched, "Attention, timed", found, columns, texts, section("picture", title, drawn))


def _document(
    record: Checked | Benched,
    title: str,
    problems: Sequence[tuple[CheckedProblem, _Found]],
    columns: Sequence[str],
    texts: Sequence[str],
    picture: str = "",
) -> str:
    wrong = [
        finding(
            "note" if result.peer else "error",
            f"{result.backend}: {summary(result)}",
            "wrong" if result.ended is Ended.RAN else str(result.ended),
            words("pre", result.command) if result.ended is not Ended.CANNOT else "",
        )
        for problem, _ in problems
        for result in problem.results
        if not result.good
    ]
    failures = [problem.failure for problem, _ in problems if problem.failure]
    wrong += [finding("error", failure, "not-computed") for failure in failures]
    numbers = [
        (f"{len(problems):,}", "problems"),
        (f"{sum(len(results) for _, results in problems):,}", "results"),
        (f"{len(wrong):,}", "wrong or failed"),
        (f"{record.threads}", "threads"),
    ]
    parts = [
        _problem(f"problem-{number}", *section, columns, is_open=len(problems) <= _OPEN)
        for number, section in enumerate(problems, 1)
    ]
    shown = {name for _, results in problems for name in _heads(columns, results)}
    explained = of_shown(texts[1:], columns, shown)
    body = [
        header(title, (hardware_of(record), f"as of {record.created}"), numbers),
        "<main>\n",
        section("look-at", "Look at", element("ul", *wrong, kind="findings") if wrong else ""),
        picture,
        section("problems", "Problems", *parts),
        section("columns", "What the columns mean", items("", *map(escaped, explained))),
        "</main>\n",
        footer({"in short": texts[0], "made by": record.tool, "schema": record.schema}),
    ]
    return document(title, "".join(body), ("page", "findings", "trace", "../charts/charts"))


def _problem(
    anchor: str, problem: CheckedProblem, found: _Found, columns: Sequence[str], *, is_open: bool
) -> str:
    """Return a problem: numbers, a row for each backend that ran, and the reasons of the others."""
    title = short_title(problem.text)
    best = next((row for _, row in found if row.get("slower by") == FASTEST), None)
    about = f"{best['backend']} is the fastest: {best['median']}" if best else ""
    heads = _heads(columns, found)
    longest = max((result.timing.median_seconds for result, _ in found if result.timing), default=0.0)
    body = []
    for result, row in found:
        how = state(result)
        sign = words("span", MARKS[how][0], _STATES[how])
        name = element("th", sign, " ", escaped(row["backend"]), scope="row")
        body.append([name, *(_cell(head, row.get(head, ""), result, longest) for head in heads)])
    bars = f"Bars: {', '.join(_BARS[head] for head in heads if head in _BARS)}."
    measured = table(("backend",), body, "numbers labelled", numbers=heads)
    failures = [result for result in problem.results if result.ended is not Ended.RAN]
    reasons, hints = [], {""}
    for failure, reason in ((result, why) for result in failures for why in result.reasons):
        text = words("strong", failure.backend) + escaped(f": {reason.message} ")
        text += words("code", f"[{reason.code}]", "dim")
        reasons.append(text + (words("div", reason.hint, "hint") if reason.hint not in hints else ""))
        hints.add(reason.hint)
    without = [
        words("strong", f"{len(failures)} without a result"),
        words("span", ", ".join(failure.backend for failure in failures), "dim"),
    ]
    repeat = words("pre", f"backends sdpa check {problem.text}")
    lines = [escaped(line) for line in device_lines(problem)] if problem.speeds else []
    return folded(
        [words("strong", title), words("span", about, "dim") if about else ""],
        key_numbers(_numbers(problem), "key small"),
        items("", *lines) if lines else "",
        words("p", bars, "dim") + scrolled(measured, title)
        if measured
        else words("p", "No backend ran.", "broken"),
        folded(without, items("reasons", *reasons)) if failures else "",
        folded([escaped("what to type to check this problem again")], repeat),
        anchor=anchor,
        is_open=is_open,
    )


def _heads(columns: Sequence[str], found: _Found) -> list[str]:
    filled = {name for _, row in found for name in row} - _LEFT_OUT
    return [name for name in columns if name in filled]


def _numbers(problem: CheckedProblem) -> list[tuple[str, str]]:
    """Return the problem in numbers, each with what it is of."""
    call = problem.problem
    query, key, value = call.query.shape, call.key.shape, call.value.shape
    heads = str(call.heads) if call.heads == call.key_heads else f"{call.heads} / {call.key_heads}"
    size = str(query[-1]) if query[-1] == value[-1] else f"{query[-1]} / {value[-1]}"
    mask = "causal" if call.is_causal else "none"
    if call.mask is not None:
        mask = "×".join(map(str, call.mask.shape)) + f" {call.mask.dtype}"
    if problem.speeds is None:
        peaks = [(f"{problem.peak_gflops:.0f}", "GFLOP/s peak")] if problem.peak_gflops else []
    else:
        rates = {"peak": problem.peak_gflops, "stated": problem.speeds.stated_gflops}
        peaks = [(speed(rate / 1e3), f"TFLOP/s {name}") for name, rate in rates.items() if rate]
    return [
        (str(prod(query[:-3])), "batch"),
        (heads, "heads" if call.heads == call.key_heads else "heads of queries / keys"),
        (f"{call.query_length:,}", "queries"),
        (f"{key[-2]:,}", "keys"),
        (size, "head size" if query[-1] == value[-1] else "size of queries / values"),
        (call.dtype, "element type"),
        (mask, "mask"),
        (speed(problem.flops / 1e9), f"GFLOP, {'gradients' if call.wants_gradient else 'forward'}"),
        *peaks,
    ]


def _cell(head: str, text: str, result: Result, longest: float) -> str:
    """Return a cell, with a bar if the number is a share or a time that is compared with others."""
    timing, worst = result.timing, result.worst
    share = None
    kind, unstable = ("s0" if result.right else "s1"), ""
    if head == "median" and timing:
        unstable = " unstable" if timing.unstable else ""
        share, kind = timing.median_seconds / longest if longest else None, "s0"
    elif head == "of peak" and timing:
        share = timing.share_of_peak
    elif head == "of limit" and worst:
        share = worst[1].share_of_allowed
    if share is None:
        kind = "number winner" if text == FASTEST else f"number{unstable}"
        return element("td", escaped(text), kind=kind, data_label=head)
    return bar(share, f"{kind}{unstable}", text, data_label=head)
