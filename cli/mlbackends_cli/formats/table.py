"""The page for people on a terminal: reports, outcomes and lists, as wide as the page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Check, Outcome, Severity
from mlbackends.model.records import Device, Library, ProbeReport, Report
from mlbackends_cli.report import checks, probes
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import plain
from mlbackends_cli.text.layout import (
    DIM,
    NAME,
    Cell,
    Row,
    grid,
    half,
    lines,
    sections,
    side_by_side,
    width,
    widths,
    wrapped,
)
from mlbackends_cli.text.plain import Listing, amount, fitting_widths, without_commands

_COLORS = {
    "usable": "green",
    "loadable": "cyan",
    "found": "yellow",
    "broken": "red",
    "unknown": "red",
}
_SEVERITIES = {
    Severity.ERROR: ("✗", "red"),
    Severity.WARNING: ("!", "yellow"),
    Severity.NOTE: ("·", "cyan"),
}
#: A reason up to this number of characters is repeated for each library.
_SHORT = 40
#: Minimum width of a column in a list that is too wide.
_NARROW = 24
#: Minimum width of a page that shows its sections side by side.
_TWO_COLUMNS = 120
_MOST_WARNINGS = 10
#: More facts than this are shown side by side on a terminal, if their values are that short.
_FEW, _SHORT_FACT = 8, 18
#: Characters of a table from which on a fact is not shown but counted.
_LONG_FACT = 1000
#: Maximum number of columns that may go below their rows.
_MOST_BELOW = 3


def _printed(found: Iterable[str], page: Page) -> str:
    return page.fitted(without_commands("\n".join(found).rstrip("\n") + "\n"))


def listing(listing: Listing, page: Page) -> str:
    """Return groups of rows below their titles; rows that differ from the usual are highlighted."""
    lines: list[str] = []
    columns = _widths(listing, page)
    if columns and any(group.rows for group in listing.groups):
        lines += grid([[Cell(title, DIM) for title in listing.columns]], columns, page)
    for at, group in enumerate(listing.groups):
        indent = 2 if group.title else 0
        if group.title:
            lines += grid([[Cell(group.title, NAME)]], [page.width], page)
        for number, (first, *others) in enumerate(group.rows):
            style = "yellow" if (at, number) in listing.marked else ""
            if columns:
                row = [Cell(text, style) for text in (first, *others)]
                lines += grid([row], [columns[0] - indent, *columns[1:]], page, indent)
                continue
            # On a page that is too narrow, the other cells go below the first.
            titled = zip(listing.columns[1:], others, strict=True)
            below = " · ".join(f"{title} {cell}" for title, cell in titled if cell)
            lines += grid([[Cell(first, style)]], [page.width - indent], page, indent)
            if below:
                lines += grid([[Cell(below, style)]], [page.width - indent - 2], page, indent + 2)
    for note in listing.notes:
        lines += grid([[Cell(note, DIM)]], [page.width], page)
    return _printed(lines, page)


def _widths(listing: Listing, page: Page) -> list[int]:
    """Return the widths of columns in which lines break only between words; [] if there are none."""
    most: list[int] = []
    least: list[int] = []
    for number, title in enumerate(listing.columns):
        indent = 2 if number == 0 and any(group.title for group in listing.groups) else 0
        cells = [title, *(row[number] for group in listing.groups for row in group.rows)]
        most.append(max(map(width, cells)) + indent)
        longest = max(width(word) for cell in cells for word in cell.split() or [""]) + indent
        # A name or a path is not broken if a line is wide enough; a kernel's signature may be.
        paths = [width(word) for cell in cells for word in cell.split() if "/" in word]
        path = max((size for size in paths if size <= page.width), default=0)
        least.append(max(path, min(longest, _NARROW if number else page.width * 3 // 5)))
    room = page.width - 2 * (len(most) - 1)
    if sum(least) > room:
        return []
    return fitting_widths(most, least, room)


def report(report: Report, page: Page) -> str:
    """Return the overview, or every detail if the page asks for details."""
    found = _absent(report, page) if page.absent else _overview(report, page)
    return _printed(_details(report, page) if page.details else found, page)


def _overview(report: Report, page: Page) -> Iterator[str]:
    rows = probes.overview(report, explained=True)
    looked = any(probes.group(name) == "accelerator" for name in report.probes)
    nothing = [[Cell(""), Cell("none found", DIM), Cell("")]] if looked else []
    parts: dict[str, Sequence[Row]] = {
        "Machine": [[Cell(""), *_row(row, "\n".join(row.lines), page)[1:]] for row in rows["machine"]],
        "Accelerators": [*_accelerators(rows["accelerator"], page)] or nothing,
        "Packages": [*_packages(report, rows["framework"], page)],
        "Libraries": [*_libraries(rows["library"], page)],
    }
    found = [(title, rows) for title, rows in parts.items() if rows]
    below = replace(page, width=min(page.width, _TWO_COLUMNS))  # longer lines are hard to read
    problems = [("Problems", problems)] if (problems := [*_problems(report)]) else []
    if page.terminal:
        yield from sections(problems, below)
    if not (page.terminal and page.width >= _TWO_COLUMNS and found):  # grep wants a line for each
        yield from sections(found, page)
    else:
        column = half(page)
        sizes = [len([*sections([entry], column)]) for entry in found]
        count = min(range(1, len(found) + 1), key=lambda at: max(sum(sizes[:at]), sum(sizes[at:])))
        left, right = sections(found[:count], column), sections(found[count:], column)
        yield from side_by_side(left, right, page)
    unknown = [_named("?", name, why) for name, why in probes.without_row(report).items()]
    yield from sections([("Could not be determined", unknown)] if unknown else [], below)
    if not page.terminal:
        yield from sections(problems, below)
    if missing := probes.missing(report):
        were = "was" if len(missing) == 1 else "were"
        line = f"{len(missing)} more {were} not found: backends info --absent"
        yield from grid([[Cell(line)]], [page.width], page)
    states = {probes.state_of(row.probe) for kind in probes.GROUPS[1:] for row in rows[kind]}
    words = probes.MEANINGS.items()
    marks = [f"{probes.MARKS[state]} {meaning}" for state, meaning in words if state in states]
    duration = [f"{report.duration_seconds:.2f} s"] if page.timing else []
    yield from grid([[Cell("   ".join([*marks, *duration]), DIM)]], [page.width], page)


def _row(row: probes.Row, text: str, page: Page, version: str | None = None) -> list[Cell]:
    between = [] if version is None else [Cell(version)]
    ends = Cell(text + _time(row.probe, page))
    return [_mark(row.probe), Cell(row.name, NAME), *between, ends]


def _named(mark: str, name: str, text: str, style: str = "red") -> list[Cell]:
    return [Cell(mark, style), Cell(name, NAME), Cell(text)]


def _accelerators(rows: Iterable[probes.Row], page: Page) -> Iterator[Row]:
    for row in sorted(rows, key=lambda row: not row.probe.devices):
        probe = row.probe
        texts = [*row.lines, *filter(None, [row.problem])]
        if not probe.devices:
            texts = [": ".join(texts) or probe.version or str(probe.presence)]
        worst = next((device for device in probe.devices if probes.state_of(device) == "broken"), probe)
        yield [_mark(worst), *_row(row, "\n".join(texts), page)[1:]]


def _packages(report: Report, rows: Iterable[probes.Row], page: Page) -> Iterator[Row]:
    """Yield torch first, each package with the libraries that it uses, and last packages without a probe."""
    used = probes.used_libraries(report.probes.get("uses"))
    for row in sorted(rows, key=probes.torch_first):
        text = " · ".join(filter(None, [*row.lines, row.problem]))
        yield _row(row, text, page, row.probe.version or None)
        if texts := used.pop(row.name, [""])[1:]:
            yield _named("", "", "\n".join(texts))
    for name, (version, *texts) in used.items():  # without a probe, or a process that is looked at
        yield _named("", name, "\n".join([version, *texts]))


def _libraries(rows: Iterable[probes.Row], page: Page) -> Iterator[Row]:
    # A missing driver is one long sentence for a dozen libraries, which share it to fit a screen.
    alike: dict[tuple[str, ...], list[probes.Row]] = {}
    for row in rows:
        is_shared = len(row.problem) > _SHORT and not page.timing
        key = (probes.state_of(row.probe), row.problem) if is_shared else (row.name,)
        alike.setdefault(key, []).append(row)
    for row, *others in alike.values():
        count = len(row.probe.libraries)
        text = row.problem or "".join(row.lines) + (f" · {count} files" if count > 1 else "")
        yield _row(row, text, page, row.probe.version)
        if others:
            names = ", ".join(f"{other.name} {other.probe.version}".rstrip() for other in others)
            yield [Cell(""), *_named("", "", f"the same: {names}")]


def _problems(report: Report) -> Iterator[Row]:
    """Yield what is broken, then the warnings, each with its fix."""
    broken, warnings = probes.broken(report), probes.warnings(report)
    found = [(probes.MARKS["broken"], "red", *row) for row in broken]
    found += [("!", "yellow", *warning) for warning in warnings[:_MOST_WARNINGS]]
    for mark, color, name, reason in found:
        hint = f"\n→ {reason.hint}" if reason.hint else ""
        yield _named(mark, name, reason.message + hint, color)
    if left := warnings[_MOST_WARNINGS:]:
        names = " ".join(dict.fromkeys(name for name, _ in left))
        yield _named("", "", f"and {len(left)} more: backends info {names}")
    if found:
        yield _named("", "", "reasons and fixes: backends doctor")


def _absent(report: Report, page: Page) -> Iterator[str]:
    """Yield what was not found, by group, with descriptions."""
    groups = {"accelerator": "Accelerators", "framework": "Packages", "library": "Libraries"}
    found: dict[str, list[Row]] = {title: [] for title in groups.values()}
    for name in probes.missing(report):
        text = f"{probes.label(name)}: {probes.meaning(name)}"
        found[groups[probes.group(name)]].append([Cell(name, NAME), Cell(text)])
    yield from sections(
        [(f"{title} that were not found", rows) for title, rows in found.items() if rows], page
    )


# ---- everything about the probes that were named -------------------------------------------


def _details(report: Report, page: Page) -> Iterator[str]:
    for number, (name, probe) in enumerate(report.probes.items()):
        if number:
            yield ""
        undetermined = probe.failure is None and probes.state_of(probe) == "unknown"
        state = probes.MEANINGS["unknown"] if undetermined else probe.presence
        label = f"{probes.label(name)} {probe.version}".rstrip()
        about = f"{state or probes.why(probe)}{_time(probe, page)}  {probes.meaning(name)}"
        yield from lines([[_mark(probe), Cell(label, NAME), Cell(about)]], page, indent=0)
        facts, tables = probes.shown_facts(name, probe)
        for fact, value in facts.items():
            if isinstance(value, dict) and len(amount(fact, value)) > _LONG_FACT:
                facts[fact] = f"{len(value)} of them: backends info --get {name}.{fact}"
        reasons = probes.own_reasons(probe, probe.libraries)
        short, rows = _short(_values(facts), page)
        yield from short
        rows += _reasons("because", reasons) + _reasons("look at", probe.warnings)
        yield from lines(rows, page)
        for fact, records in tables.items():
            yield from _records(fact, records, page)
        for devices in probes.alike(probe.devices):
            yield from _devices(devices, page)
        for library in probe.libraries:
            values = {"presence": str(library.presence), **probes.values_of(library)}
            yield from _entry(library, library.path, values, page)


def _short(rows: list[list[Cell]], page: Page) -> tuple[list[str], list[list[Cell]]]:
    """Return the short of many facts as lines of several, for a terminal; and the other facts."""
    short = [row for row in rows if width(row[1].text) <= _SHORT_FACT]
    columns = widths(short)
    count = (page.width - 2) // (sum(columns) + 4) if page.terminal and len(short) > _FEW else 1
    if count < 2:
        return [], rows
    height = -(-len(short) // count)
    beside = [[cell for row in short[at::height] for cell in row] for at in range(height)]
    filled = [row + [Cell("")] * (2 * count - len(row)) for row in beside]
    return [*grid(filled, columns * count, page, 2)], [row for row in rows if row not in short]


def _records(fact: str, rows: probes.Table, page: Page, indent: int = 2) -> Iterator[str]:
    """Yield a list of records as a table, the last columns below their rows if it is too wide."""
    yield from lines([[Cell(fact, "italic")]], page) if fact else ()
    names = probes.columns(rows)
    texts = [[amount(name, row[name]) if name in row else "" for name in names] for row in rows]
    table = [[Cell(name, NAME) for name in names], *(list(map(Cell, text)) for text in texts)]
    columns, count = widths(table), len(names)
    while count and sum(columns[:count]) + 2 * count + indent - 2 > page.width:
        count -= 1  # what does not fit goes below its row
    is_table = count == len(names) or (count > 1 and len(names) - count <= _MOST_BELOW)
    if is_table and not any("\n" in cell for row in texts for cell in row):
        for cells, text in zip(table, [[""] * len(names), *texts], strict=True):
            yield from grid([cells[:count]], columns[:count], page, indent)
            below = [f"{n} {t}" for n, t in zip(names[count:], text[count:], strict=True) if t]
            yield from (lines([[Cell(" · ".join(below), DIM)]], page, indent=indent + 4) if below else ())
        return
    for row in rows:
        found = [[Cell(""), *pair] for pair in _values({k: v for k, v in row.items() if v != ""})]
        if found:
            found[0][0] = Cell("•")
        yield from lines(found, page, indent=indent)


def _devices(devices: Sequence[Device], page: Page) -> Iterator[str]:
    """Yield devices that are alike: what all have, and a table of what differs."""
    first, count = devices[0], len(devices)
    each = [{"index": device.index, **probes.values_of(device)} for device in devices]
    shared = {
        name: value
        for name, value in probes.values_of(first).items()
        if all(values.get(name) == value for values in each)
    }
    place = f"{first.kind} {first.index}" if count == 1 else f"{count} × {first.kind}"
    yield from _entry(first, f"{place}  {first.name}".rstrip(), shared, page)
    if count > 1:
        rows = [{k: v for k, v in values.items() if k not in shared} for values in each]
        yield from _records("", rows, page, indent=5)


def _entry(entry: Device | Library, title: str, values: Mapping[str, object], page: Page) -> Iterator[str]:
    """Yield a device or a copy of a library."""
    mark, room = _mark(entry), page.width - 4
    yield from grid([[mark, Cell(title, NAME)]], [1, room - 1], page, 2)
    yield from lines(_values(values) + _reasons("because", entry.reasons), page, indent=5)


def _values(values: Mapping[str, object]) -> list[list[Cell]]:
    return [[Cell(name, DIM), Cell(amount(name, value))] for name, value in values.items()]


def _reasons(word: str, reasons: Iterable[Reason]) -> list[list[Cell]]:
    found = []
    for reason in reasons:
        hint = f"\n→ {reason.hint}" if reason.hint else ""
        found.append([Cell(word, DIM), Cell(f"{reason.message} [{reason.code}]{hint}")])
    return found


def _mark(entry: ProbeReport | Device | Library) -> Cell:
    state = probes.state_of(entry)
    return Cell(probes.MARKS[state], _COLORS.get(state, DIM))


def _time(probe: ProbeReport, page: Page) -> str:
    return f"  {probe.duration_seconds * 1000:.1f} ms" if page.timing else ""


def outcome(outcome: Outcome, page: Page) -> str:
    """Return what failed, the worst first, with why and what to do; then what was not checked.

    With details also the evidence, what passed, and what does not apply.
    """
    groups: dict[tuple[object, ...], list[Check]] = {}
    for check in outcome.failed():  # those that differ in what was seen alone share their advice
        key = (check.severity, check.code, checks.place(check), check.why, check.hint)
        groups.setdefault(key, []).append(check)
    parts = [_failed(group, page) for group in groups.values()]
    for title, _, listed in checks.not_failed(outcome, details=page.details):
        # The title of a hazard describes a problem, that of a rule a requirement.
        is_hazard = outcome.kind == "doctor" and title == "Passed"
        heading = "Looked for and not found" if is_hazard else title
        causes: dict[str, list[str]] = {}
        for check in listed:  # codes with the same cause are in one row
            causes.setdefault(checks.cause(check), []).append(checks.code(check))
        rows = [("", f"{cause}: {', '.join(names)}") for cause, names in causes.items() if names[1:]]
        rows = [*((names[0], cause) for cause, names in causes.items() if not names[1:]), *rows]
        parts.append(plain.printed((plain.Passage(heading, tuple(rows)),), page))
    summary = checks.summary(outcome)
    last = wrapped(summary, page.width) if page.terminal else [summary]  # grep wants one line
    text = "\n".join([*parts, *last, ""])
    return page.fitted(without_commands(text, page.sign("·", ".")))


def _failed(group: list[Check], page: Page) -> str:
    check = group[0]
    sign, color = _SEVERITIES[check.severity]
    place = f" ({declared})" if (declared := checks.place(check)) else ""
    times = f", {len(group)} times" if len(group) > 1 else ""
    dash = "- " if len(group) > 1 else ""
    width = len("type")  # aligns commands with the advice above them
    lines = [("", f"{dash}{checks.sentence(check)}") for check in group]
    lines += [(word.ljust(width), text) for word, text in checks.advice(check) if word != "type"]
    if page.details:
        evidence = dict.fromkeys(row for check in group for row in checks.evidence(check, units=True))
        lines += [("seen", f"{name} = {value}") for name, value in evidence]
    heading = f"{sign} {check.severity} {checks.code(check)}{place}{times}"
    text = plain.printed((plain.Passage(heading, tuple(lines)),), page, f"bold {color}")
    # On separate lines and never broken, so that they can be copied.
    commands = dict.fromkeys(checks.line(check.command) for check in group if check.command)
    return text + "".join(f"  {'type'.ljust(width)}  {command}\n" for command in commands)
