"""Runs of `sdpa check` and `sdpa bench` as tables: rows of results, the notes below, text and Markdown."""

import os
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from mlbackends.base.errors import counted, some
from mlbackends.base.tables import table as table_file
from mlbackends.model.benched import Benched, BenchedProblem
from mlbackends.model.checked import Checked, CheckedProblem, Ended, Result
from mlbackends.sdpa.verify.outcome import summary
from mlbackends.sdpa.verify.problem_size import least_bytes
from mlbackends.tracing.finder import took
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, literal, table
from mlbackends_cli.text.plain import binary_size, one_line, without_commands, wrapped

GRADIENTS = {"query": "dQ", "key": "dK", "value": "dV", "mask": "dM", "sinks": "dsinks"}
FASTEST = "fastest"
_WIDER = "a wider terminal shows more columns; try COLUMNS=200"
#: How a result ended: its sign, that of a terminal without it, and a colour.
MARKS = {
    "good": ("✓", "+", "green"),
    "bad": ("✗", "x", "red"),
    "cannot": ("–", "-", "dim"),
    "open": ("?", "?", "yellow"),
}
#: The cells of a backend that ran, by the heads of their columns.
Row = dict[str, str]


class Section(NamedTuple):
    """A problem: a title, lines, and a row for each result that ran.

    explained: the results of which it is printed why there is none, or a wrong one.
    """

    title: str
    before: list[str]
    rows: list[tuple[Result, Row]]
    explained: list[Result]


# ---- rows -----------------------------------------------------------------------------------


def rows(problem: CheckedProblem) -> list[tuple[Result, Row]]:
    """Return the rows of the backends that ran, the fastest first; unstable times are not ordered.

    None is the fastest where one that is right had a lower time that is unstable.
    """
    timed = [result for result in ran(problem) if result.timing]
    timed.sort(key=lambda each: each.timing.median_seconds if each.timing else 0.0)
    steady = [result for result in timed if result.timing and not result.timing.unstable]
    others = [result for result in ran(problem) if result not in steady]
    first = next((result for result in timed if result.right), None)
    best = first if first in steady else None
    found = [(result, _row(result, best)) for result in (*steady, *others)]
    if problem.speeds is not None:
        for result, row in found:
            row.pop("GFLOP/s", None)
            timing, speeds = result.timing, problem.speeds
            if result.memory is None:
                row["memory"] = "?"
            if timing is None or not timing.median_seconds:
                continue
            row["TFLOP/s"] = speed(timing.gflops / 1e3)
            if speeds.stated_gflops:
                row["of stated"] = f"{timing.gflops / speeds.stated_gflops:.0%}"
            if speeds.bandwidth_bytes_per_second:
                # Inputs and result, each moved once.
                rate = least_bytes(problem.problem) / timing.median_seconds
                row["of memory"] = f"{rate / speeds.bandwidth_bytes_per_second:.0%}"
            if timing.host_seconds is not None:
                row["launch"] = took(timing.host_seconds * 1e9)
    return found


def hardware_of(record: Checked | Benched) -> str:
    """Return what a run computed on: GPUs by name, and the processor with its threads."""
    problems = [
        problem.checked if isinstance(problem, BenchedProblem) else problem for problem in record.problems
    ]
    places = dict.fromkeys(problem.place for problem in problems)
    if "" in places or not places:
        places.pop("", None)
        processor = record.processor or "this processor"
        places[f"{processor}, {counted(record.threads, 'thread')}"] = None
    return "; ".join(places)


def about(problem: CheckedProblem) -> list[str]:
    """Return the lines above a problem's table: the peak, and what was compared."""
    lines = []
    on_device = problem.speeds is not None
    if problem.peak_gflops:
        unit, rate = "GFLOP/s", f"{problem.peak_gflops:.0f}"
        if on_device:
            unit, rate = "TFLOP/s", speed(problem.peak_gflops / 1e3)
        lines.append(f"peak: {rate} {unit}, {problem.peak_by}")
    elif on_device and problem.peak_by:
        lines.append(f"peak: could not be measured: {problem.peak_by}")
    if problem.sample:
        lines.append(f"sample: {problem.sample}")
    return lines


def of_devices(problems: Sequence[CheckedProblem]) -> list[str]:
    """Return what applies to all problems of a device: bandwidth, stated peaks, and the timing method."""
    lines: dict[str, None] = {}
    ways: dict[str, dict[str, None]] = {}
    for problem in problems:
        if (speeds := problem.speeds) is None:
            continue
        if speeds.bandwidth_bytes_per_second:
            rate = speed(speeds.bandwidth_bytes_per_second / 1e9)
            lines[f"bandwidth: {rate} GB/s, {speeds.bandwidth_by}"] = None
        elif speeds.bandwidth_by:
            lines[f"bandwidth: could not be measured: {speeds.bandwidth_by}"] = None
        numbers = [
            f"{speed(number / factor)} {unit}"
            for number, factor, unit in (
                (speeds.stated_gflops, 1e3, "TFLOP/s"),
                (speeds.stated_bytes_per_second, 1e9, "GB/s"),
            )
            if number
        ]
        timed = [result for result in problem.results if result.timing]
        if timed:
            lines["stated: " + ", ".join([*numbers, speeds.stated_by])] = None
        for result in timed:
            if result.timing and result.timing.timed_by:
                ways.setdefault(result.timing.timed_by, {})[result.backend] = None
    usual = max(ways, key=lambda way: len(ways[way]), default="")
    for way, names in ways.items():
        lines[f"{'timed by' if way == usual else some(tuple(names))}: {way}"] = None
    return list(lines)


def _row(result: Result, best: Result | None) -> Row:
    row = {"backend": name_of(result)}
    if timing := result.timing:
        row["median"] = f"{'~' * bool(timing.unstable)}{took(timing.median_seconds * 1e9)}"
        ends = timing.lower_seconds, timing.upper_seconds
        row["spread"] = "-".join(took(seconds * 1e9) for seconds in ends)
        row["GFLOP/s"] = speed(timing.gflops)
        if timing.share_of_peak is not None:
            row["of peak"] = f"{timing.share_of_peak:.0%}"
        if best and best.timing and best.timing.median_seconds and not timing.unstable:
            times = timing.median_seconds / best.timing.median_seconds
            row["slower by"] = FASTEST if result is best else f"{speed(times)}×"
    if result.worst is not None:
        _, errors = result.worst
        row["max error"] = f"{errors.largest_absolute:.1e}"
        row["relative"] = f"{errors.largest_relative:.1e}"
        if errors.share_of_allowed is not None:
            row["of limit"] = f"{errors.share_of_allowed:.0%}"
        if errors.in_reference_errors is not None:
            row["error ratio"] = f"{errors.in_reference_errors:.2f}×"
    if result.errors is not None and result.gradients:
        row["out"] = f"{result.errors.largest_absolute:.1e}"
    for name, errors in result.gradients.items():
        row[GRADIENTS.get(name, name)] = f"{errors.largest_absolute:.1e}"
    if result.memory is not None:
        row["memory"] = f"+{binary_size(result.memory.extra_bytes)}"
    return row


def ran(problem: CheckedProblem) -> list[Result]:
    """Return the results of the backends that ran."""
    return [result for result in problem.results if result.ended is Ended.RAN]


def name_of(result: Result) -> str:
    """Return a backend's name with its instruction set or version."""
    words = ["peer"] if result.peer else []
    words += [result.details[name] for name in ("instruction set", "version") if name in result.details]
    return f"{result.backend} ({', '.join(words)})" if words else result.backend


def speed(gflops: float) -> str:
    """Return GFLOP/s in three digits."""
    return f"{gflops:.3g}" if gflops < 1000 else f"{gflops:.0f}"


# ---- a table for each problem ---------------------------------------------------------------


def printed_tables(
    sections: Sequence[Section],
    columns: Sequence[str],
    spared: Sequence[Sequence[str]],
    notes: Sequence[str],
    page: Page,
) -> str:
    """Return all as text, as wide as the page.

    spared: groups of columns that a narrow page leaves out, in order. notes: the first is the summary.
    """
    from mlbackends_cli.text.layout import Cell, grid  # rich, which JSON does not need

    lines: list[str] = []
    hints: set[str] = set()
    elsewhere: dict[str, dict[str, None]] = {}
    for verdict in (verdict for section in sections for verdict in section.explained):
        if verdict.is_elsewhere:
            elsewhere.setdefault(verdict.reasons[0].message, {})[verdict.backend] = None
    sections = [
        section._replace(explained=[verdict for verdict in section.explained if not verdict.is_elsewhere])
        for section in sections
    ]
    # What cannot compute any of several problems, for one reason, is explained once.
    everywhere: dict[tuple[str, ...], Result] = {}
    if len(sections) > 1:
        keys = [{_reason_key(verdict) for verdict in section.explained} for section in sections]
        everywhere = {
            _reason_key(verdict): verdict
            for verdict in sections[0].explained
            if verdict.ended is Ended.CANNOT and not verdict.required
            if _reason_key(verdict) in set.intersection(*keys)
        }
    is_cut, shown = False, set[str]()
    for section in sections:
        lines += [page.styled(section.title, "bold"), *section.before]
        cells = [row for _, row in section.rows]
        widths = {
            name: max(len(name), *(len(row.get(name, "")) for row in cells))
            for name in columns
            if any(name in row for row in cells)
        }
        for names in spared:
            if sum(widths.values()) + 2 * len(widths) + 3 <= page.width:
                break
            is_cut |= not widths.keys().isdisjoint(names)
            for name in names:
                widths.pop(name, None)
        shown |= set(widths)
        # Numbers are at the right of their columns, names at the left.
        table_rows = [[Cell(""), *(Cell(name.rjust(widths[name]), "dim") for name in widths)]]
        for result, row in section.rows:
            style = "bold" if row.get("slower by") == FASTEST else ""
            sign, _, color = MARKS[state(result)]
            texts = [row.get(name, "").rjust(width) for name, width in widths.items()]
            table_rows.append([Cell(sign, color), *(Cell(text, style) for text in texts)])
        for line in table_rows if widths else ():
            line[1] = line[1]._replace(text=line[1].text.strip())
        lines += grid(table_rows, [1, *widths.values()], page, 2) if widths else ()
        for verdict in section.explained:
            if _reason_key(verdict) not in everywhere:
                lines += why_lines(verdict, page, hints)
        lines.append("")
    if everywhere:
        lines.append(page.styled("cannot compute any of these", "bold"))
        lines += [line for verdict in everywhere.values() for line in why_lines(verdict, page, hints)]
        lines.append("")
    for message, backends in elsewhere.items():
        text = f"{page.sign('–', '-')} {', '.join(backends)}: {message} [wrong-device]"
        lines += [page.styled(line, "dim") for line in wrapped(text, page.width, "", "  ")]
    lines += [""] * bool(elsewhere)
    lines += wrapped(notes[0], page.width, "", "  ")
    for note in (*of_shown(notes[1:], columns, shown), *([_WIDER] if is_cut else [])):
        lines += [page.styled(line, "dim") for line in wrapped(note, page.width, "", "  ")]
    text = without_commands("\n".join(lines).rstrip("\n") + "\n")
    return page.fitted(text)


def of_shown(notes: Sequence[str], columns: Sequence[str], shown: Container[str]) -> list[str]:
    """Return the notes that are of no column, or of one that is shown."""
    heads = {note: note.partition(":")[0] for note in notes}
    return [name for name, head in heads.items() if head not in columns or head in shown]


def _reason_key(result: Result) -> tuple[str, ...]:
    return result.ended, result.backend, *(reason.message for reason in result.reasons)


def state(result: Result) -> str:
    """Return the state of a result: "good", "bad", "cannot", or "open" if it was not compared."""
    if not (result.right and result.good):
        return "bad"
    if result.ended is Ended.RAN:
        return "open" if result.incomparable else "good"
    return "cannot" if result.ended is Ended.CANNOT else "bad"


def mark(result: Result, page: Page) -> str:
    """Return the sign for the state of a result."""
    fancy, plain, color = MARKS[state(result)]
    return page.styled(page.sign(fancy, plain), color)


def why_lines(result: Result, page: Page, hints: set[str]) -> Iterator[str]:
    """Yield why a backend gave no result, or a wrong one, and what to type to repeat that.

    hints: the remedies that were printed already.
    """
    if result.ended is not Ended.RAN:
        word = f"{result.ended}: "
        if result.ended is Ended.CANNOT:
            word = "required, but " if result.required else ""
        start = f"{mark(result, page)} {result.backend}: {word}"
        for reason in result.reasons:
            text = f"  {start}{one_line(reason.message)} [{reason.code}]"
            yield from wrapped(text, page.width, "", " " * 6)
            start = "  "
            if reason.hint and reason.hint not in hints:
                hints.add(reason.hint)
                hint = f"      {page.sign('→', '->')} {one_line(reason.hint)}"
                yield from (page.styled(line, "dim") for line in wrapped(hint, page.width, "", " " * 8))
    elif not result.right:
        text = f"    {result.backend} is wrong: {summary(result)}"
        yield from wrapped(text, page.width, "", " " * 6)
    elif result.incomparable:
        text = f"    {result.backend} is not compared: {result.incomparable}"
        yield from wrapped(text, page.width, "", " " * 6)
    if not result.good and result.ended is not Ended.CANNOT:
        # On a separate line and never broken, so that it can be copied.
        yield f"      {result.command}"


# ---- what the columns mean ------------------------------------------------------------------


def notes_of(problems: Sequence[CheckedProblem], *columns: str) -> list[str]:
    """Return what columns mean, and notes on some of the problems. columns: names in notes.json."""
    timings = [result.timing for problem in problems for result in problem.results if result.timing]
    named = [*columns]
    named += ["backward"] * any(problem.problem.wants_gradient for problem in problems)
    # As the page rounds it.
    devices = of_devices(problems)
    if devices and timings:
        named += ["of stated", "of memory", "launch"]
        named += ["memory"] * any(
            result.memory is None for problem in problems if problem.speeds for result in ran(problem)
        )
    named += dict.fromkeys(
        "beyond product" if problem.speeds else "beyond peak"
        for problem in problems
        for result in problem.results
        if result.timing and (result.timing.share_of_peak or 0.0) >= 1.005
    )
    found: dict[str, list[str]] = {}
    for result in (result for problem in problems for result in problem.results):
        if result.timing is not None and result.timing.unstable:
            found.setdefault(result.timing.unstable, []).append(result.backend)
    whys = [f"{some(tuple(dict.fromkeys(names)))}: {why}" for why, names in found.items()]
    texts = table_file(os.path.join(os.path.dirname(__file__), "notes"))
    unstable = f"~: unstable time, not compared; {'; '.join(whys)}"
    return [*devices, *(texts[name] for name in named), *[unstable] * bool(whys)]


CHECK_COLUMNS = (
    *("backend", "median", "slower by", "spread", "GFLOP/s", "TFLOP/s", "of peak", "of stated"),
    *("of memory", "launch", "max error", "of limit"),
    *("relative", "error ratio", "out", *GRADIENTS.values(), "memory"),
)
#: The columns that a narrow page leaves out, in this order.
_CHECK_SPARED = [
    *(("spread",), ("relative",), ("error ratio",), ("out", *GRADIENTS.values()), ("GFLOP/s",)),
    *(("launch",), ("of stated",), ("memory",), ("of memory",), ("max error",), ("of peak",)),
]


def check_text(checked: Checked, page: Page) -> str:
    """Return a table for each problem, as wide as the page allows."""
    sections = []
    for problem in checked.problems:
        ours, torch = problem.chosen or "no backend", problem.torch_chosen or "none"
        if problem.chosen and problem.chosen not in {result.backend for result in problem.results}:
            copies = " copies to the CPU and" if problem.place else ""
            ours += f", which{copies} was not run here (add --backend {ours})"
        above = [f"torch would choose {torch}; mlbackends would choose {ours}", *about(problem)]
        lines = [line for text in above for line in wrapped(text, page.width, "  ", " " * 4)]
        before = [page.styled(line, "dim") for line in lines]
        if problem.failure:
            sign = page.styled(page.sign("✗", "x"), "red")
            before += wrapped(f"  {sign} {one_line(problem.failure)}", page.width, "", " " * 4)
        sections.append(Section(problem.text, before, rows(problem), list(problem.results)))
    return printed_tables(sections, CHECK_COLUMNS, _CHECK_SPARED, check_notes(checked), page)


def check_notes(checked: Checked) -> list[str]:
    """Return the summary, and what the columns mean."""
    count = len(checked.problems)
    bad = sum(not problem.good for problem in checked.problems)
    idle = sum(problem.idle for problem in checked.problems)
    ending = f"{bad} of {count} with something wrong" if bad else "nothing wrong"
    if idle and not bad:
        ending = "no backend ran" if idle == count else f"{ending} in what ran"
    if 0 < idle < count:
        ending += f"; no backend ran for {idle} of {count}"
    summary = f"{counted(count, 'problem')} on {hardware_of(checked)}: {ending}"
    results = [result for problem in checked.problems for result in ran(problem)]
    if not results:
        return [summary]
    measures = ["slower by"] * any(result.timing for result in results) + ["max error", "of limit"]
    measures += ["relative", "error ratio"]
    measures += ["gradients"] * any(problem.problem.wants_gradient for problem in checked.problems)
    measured = {result.memory.measured_by for result in results if result.memory}
    memory = [f"memory: extra memory during the call, measured by {name}" for name in sorted(measured)]
    return [summary, *notes_of(checked.problems, *measures), *memory]


def check_markdown(checked: Checked, _page: Page) -> str:
    """Return a table for each problem with why a backend gave no result or a wrong one, and the notes."""
    parts = []
    for problem in checked.problems:
        cells = [tuple(literal(row.get(name, "")) for name in CHECK_COLUMNS) for _, row in rows(problem)]
        failures = [
            f"- {literal(result.backend)}: {literal(f'{result.ended}: {summary(result)}')}"
            for result in problem.results
            if result.ended is not Ended.RAN or not result.good
        ]
        parts += [
            f"### {code(problem.text, in_table=False)}",
            literal(problem.failure) or ("" if cells else "No backend ran."),
            "\n".join(f"- {literal(line)}" for line in about(problem) if problem.speeds),
            table(CHECK_COLUMNS, cells),
            "\n".join(failures),
        ]
    return "\n\n".join(filter(None, [*parts, *map(literal, check_notes(checked))])) + "\n"


_BENCH_SPARED = [
    *(("of stated",), ("launch",), ("of memory",), ("spread",), ("GFLOP/s",), ("max error",)),
    *(("quarters",), ("slower by",)),
]


def baseline(benched: Benched) -> str:
    """Return the backend for comparison: the first correct peer that was timed, else the slowest of ours."""
    timed = [
        (not result.peer, -result.timing.median_seconds, result.backend)
        for problem in benched.problems
        for result in problem.checked.results
        if result.timing is not None and (result.right or not result.peer)
    ]
    peers = [name for is_ours, _, name in timed if not is_ours]
    return peers[0] if peers else min(timed)[2] if timed else ""


def bench_columns(benched: Benched, base: str) -> tuple[str, ...]:
    """Return the heads of the columns of a bench."""
    measured = (
        *("backend", "median", "of limit", "max error", "slower by", "spread"),
        *("GFLOP/s", "TFLOP/s", "of peak"),
        *("of stated", "of memory", "launch"),
    )
    is_compared = any(problem.changes for problem in benched.problems)
    changes = ("× saved", "by peak") if is_compared else ()
    return (*measured, f"× {base}", "quarters", *changes)


def bench_text(benched: Benched, page: Page, base: str) -> str:
    """Return a table for each problem. base: the backend that others are compared with."""
    sections = []
    for problem in benched.problems:
        above = about(problem.checked) if problem.checked.speeds else []
        lines = [f"  {line}" for line in above] + [f"    {problem.checked.failure}"]
        before = [piece for line in lines for piece in wrapped(line, page.width, "", " " * 4)]
        found = bench_rows(problem, benched, base)
        uncompared = {change.backend for change in problem.changes if not change.by_time}
        # `check` lists the backends that do not support a problem; here they would hide the numbers.
        explained = [
            result
            for result in problem.checked.results
            if result.ended is not Ended.CANNOT
            or result.required
            or result.peer
            or result.backend in uncompared
            or not found
        ]
        sections.append(Section(problem.checked.text, before, found, explained))
    return printed_tables(
        sections, bench_columns(benched, base), _BENCH_SPARED, bench_notes(benched, base), page
    )


def bench_rows(problem: BenchedProblem, benched: Benched, base: str) -> list[tuple[Result, Row]]:
    """Return the rows of the backends that ran, with what `bench_columns` has."""
    found = rows(problem.checked)
    memory = benched.bandwidth_bytes_per_second
    changes = {change.backend: change for change in problem.changes}
    for result, row in found:
        if problem.checked.speeds is None and (memory and result.timing and result.timing.median_seconds):
            row["of memory"] = f"{problem.least_bytes / result.timing.median_seconds / memory:.0%}"
        if ratio := problem.ratio(result.backend, base):
            row[f"× {base}"] = speed(ratio.median)
            row["quarters"] = f"{speed(ratio.lower)}-{speed(ratio.upper)}"
        if change := changes.get(result.backend):
            row["× saved"] = f"{change.by_time:.2f}"
            row["by peak"] = f"{change.by_share:.2f}" if change.by_share else ""
    return found


def bench_notes(benched: Benched, base: str) -> list[str]:
    """Return the summary, and what the columns mean."""
    problems = [problem.checked for problem in benched.problems]
    idle, count = sum(problem.idle for problem in problems), len(problems)
    ending = f" for {idle} of {count}" if idle < count else ""
    ending = f": no backend ran{ending}" if idle else ""
    found = [f"{hardware_of(benched)}, {counted(benched.rounds, 'round')}{ending}"]
    on_cpu = [problem for problem in problems if problem.speeds is None]
    if peaks := [device.peak_gflops for device in on_cpu if device.peak_gflops]:
        by = next(device.peak_by for device in on_cpu if device.peak_by)
        ends = dict.fromkeys(speed(pick(peaks)) for pick in (min, max))
        found.append(f"peak: {' to '.join(ends)} GFLOP/s, {by}")
    if benched.bandwidth_bytes_per_second:
        rate = f"{speed(benched.bandwidth_bytes_per_second / 1e9)} GB/s, {benched.bandwidth_by}"
        found.append(f"memory: {rate}; of memory: inputs and result once")
    if any(ratio.to == base for problem in benched.problems for ratio in problem.ratios):
        found.append(f"× {base}: speed ratio in the same round, median and middle half")
    columns_shown = ["max error", "of limit"] * any(ran(problem) for problem in problems)
    columns_shown += ["changes"] * any(problem.changes for problem in benched.problems)
    return found + notes_of(problems, *columns_shown)


def bench_markdown(benched: Benched, _page: Page, base: str) -> str:
    """Return one table of all problems."""
    heads = bench_columns(benched, base)
    found = [
        (code(problem.checked.text), *(literal(row.get(name, "")) for name in heads))
        for problem in benched.problems
        for result, row in bench_rows(problem, benched, base)
        if result.timing is not None
    ]
    problems = [problem.checked for problem in benched.problems if problem.checked.speeds]
    above = dict.fromkeys(line for problem in problems for line in about(problem))
    texts = map(literal, (*above, *bench_notes(benched, base)))
    return "\n\n".join([table(("problem", *heads), found), *texts]) + "\n"
