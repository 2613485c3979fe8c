"""The page for people on a terminal: reports, outcomes and lists, as wide as the page."""

import io
import re
from collections.abc import Iterable
from typing import Any, cast

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device, Library, ProbeReport, Report
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import checks, probes, prose
from mlbackends_cli.text.listing import Listing
from mlbackends_cli.text.plain import amount, without_commands

_Row = tuple[list[str | Text], str | Text]
"""The short cells of a line, and the text behind them."""

_MARKS = {
    "usable": ("✓", "+", "green"),
    "loadable": ("◐", "~", "cyan"),
    "found": ("·", "-", "yellow"),
    "broken": ("✗", "x", "red"),
    "unknown": ("?", "?", "red"),
    "absent": (" ", " ", "dim"),
}
_SEVERITIES = {
    Severity.ERROR: ("✗", "x", "31"),
    Severity.WARNING: ("!", "!", "33"),
    Severity.NOTE: ("·", "-", "36"),
}
_ASCII = str.maketrans({"·": "-", "…": "~", "×": "x", "→": "->", "—": "-"})
_CONTROLS = (
    "\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"
    "|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""What a terminal executes or turns around, but for rich's own colours."""
_SHORT = 40
"""A reason of at most so many characters is repeated for each library."""
_NARROW = 24
"""Text that would get fewer columns than this begins on a line of its own."""
_MOST_WARNINGS = 10
_PLACE_OF_TITLE = "\ue000"
"""Stands for a title in a grid of rows; no text that is shown is this character alone."""


def report(report: Report, page: Page) -> str:
    """Return the overview, or every detail where the page asks for details."""
    parts = _details(report, page) if page.details else _overview(report, page)
    return _printed(Group(*parts), page)


# ---- lists ---------------------------------------------------------------------------------


def listing(listing: Listing, page: Page) -> str:
    """Return groups of rows below their titles; rows that differ from the usual stand out."""
    widths = _widths(listing, page)
    body = _columns(listing, widths) if widths else _stacked(listing)
    notes = [Text(note, style="dim") for note in listing.notes]
    lines = _printed(Group(body, *notes), page).splitlines(keepends=True)
    # A title may be as wide as the page, and a cell only as its column.
    titles = iter([group.title for group in listing.groups if group.title])
    return "".join(
        _printed(Text(next(titles, ""), style="bold"), page)
        if line.strip() == _PLACE_OF_TITLE
        else line
        for line in lines
    )


def _widths(listing: Listing, page: Page) -> list[int]:
    """Return how wide each column is, so that lines break between words alone; [] where that fails."""
    most: list[int] = []
    least: list[int] = []
    for number, title in enumerate(listing.columns):
        indent = 2 if number == 0 and any(group.title for group in listing.groups) else 0
        cells = [title, *(row[number] for group in listing.groups for row in group.rows)]
        most.append(max(map(cell_len, cells)) + indent)
        longest = max(cell_len(word) for cell in cells for word in cell.split() or [""]) + indent
        # A name stays whole; a path or a kernel's signature may be broken.
        least.append(min(longest, _NARROW if number else page.width * 3 // 5))
    room = page.width - 2 * (len(most) - 1)
    if sum(least) > room:
        return []
    widths = list(most)
    while sum(widths) > room:
        at = max(range(len(widths)), key=lambda each: (widths[each] > least[each], widths[each]))
        widths[at] -= 1
    return widths


def _columns(listing: Listing, widths: list[int]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for width in widths:
        grid.add_column(overflow="fold", width=width)
    grid.add_row(*(Text(column, style="dim") for column in listing.columns))
    for at, group in enumerate(listing.groups):
        if group.title:
            grid.add_row(_PLACE_OF_TITLE)
        for number, (first, *others) in enumerate(group.rows):
            style = "yellow" if (at, number) in listing.marked else ""
            cells = (f"  {first}" if group.title else first, *others)
            grid.add_row(*(Text(cell, style=style) for cell in cells))
    return grid


def _stacked(listing: Listing) -> RenderableType:
    """Return each row as its first cell, and the others below it, for a page that is too narrow."""
    lines: list[RenderableType] = []
    for at, group in enumerate(listing.groups):
        lines += [Text(group.title, style="bold")] if group.title else []
        indent = 2 if group.title else 0
        for number, (first, *others) in enumerate(group.rows):
            style = "yellow" if (at, number) in listing.marked else ""
            titled = zip(listing.columns[1:], others, strict=True)
            below = " · ".join(f"{title} {cell}" for title, cell in titled if cell)
            lines.append(_indented(Text(first, style=style, overflow="fold"), indent))
            if below:
                lines.append(_indented(Text(below, style=style, overflow="fold"), indent + 2))
    return Group(*lines)


def _indented(content: RenderableType, columns: int = 2) -> RenderableType:
    return Padding(content, (0, 0, 0, columns))


def _printed(content: RenderableType, page: Page) -> str:
    file = io.StringIO()
    # Standard colours only: each terminal draws them so that they read on its own background.
    console = Console(
        file=file,
        width=page.width,
        force_terminal=page.color,
        color_system="standard" if page.color else None,
        no_color=not page.color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        safe_box=not page.unicode,
    )
    console.print(content)
    text = re.sub(_CONTROLS, "\ufffd", file.getvalue())
    text = "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n") + "\n"
    return text if page.unicode else text.translate(_ASCII)


# ---- the overview --------------------------------------------------------------------------


def _overview(report: Report, page: Page) -> list[RenderableType]:
    groups = probes.grouped(report)
    accelerators = groups["accelerator"]
    sections = {
        "Machine": _machine(groups["machine"], page),
        "Accelerators": _accelerators(accelerators, page) if accelerators else None,
        "Libraries": _libraries(probes.best_first(groups["library"]), page),
        "Packages": _packages(groups["framework"]),
        "Not here": _dim(", ".join(probes.missing(report))),
        "Could not tell": _list(
            [([name], why) for name, why in probes.undetermined(report).items()], page
        ),
        "Look at": _warnings(report, page),
    }
    parts: list[RenderableType] = []
    for title, content in sections.items():
        if content is not None and content != Text(""):
            parts += [Text(title, style="bold"), _indented(content)]
    marks = [
        f"{_symbol(state, page)} {probes.MEANINGS[state]}"
        for state in ("usable", "loadable", "found", "broken")
    ]
    took = f"   {report.duration_seconds:.2f} s" if page.timing else ""
    return [*parts, _dim("   ".join(marks) + took)]


def _list(rows: list[_Row], page: Page, indent: int = 2) -> RenderableType | None:
    """Return lines of short cells with a text behind them, which goes below them on a narrow page.

    indent: how far from the left the lines are printed.
    """
    if not rows:
        return None
    heads = [[_folding(cell) for cell in cells] for cells, _ in rows]
    texts = [_folding(text) for _, text in rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(*heads, strict=True)]
    before = sum(width + 2 for width in widths if width)
    if page.width - indent - before >= _NARROW:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for _ in widths:
            grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for cells, text in zip(heads, texts, strict=True):
            grid.add_row(*cells, text)
        return grid
    lines: list[RenderableType] = []
    for cells, text in zip(heads, texts, strict=True):
        head = Text("  ", overflow="fold").join(cell for cell in cells if cell.plain)
        if head.cell_len + 2 + text.cell_len <= page.width - indent and "\n" not in text.plain:
            lines.append(Text("  ").join(part for part in (head, text) if part.plain))
            continue
        lines += [head] if head.plain else []
        lines.append(_indented(text))
    return Group(*lines)


def _folding(cell: str | Text) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell
    text.overflow = "fold"
    return text


def _machine(group: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    rows: list[_Row] = []
    for name, probe in group.items():
        line = probes.why(probe) if probe.failure else probes.glance(name, probe)
        if line:
            rows.append(([name], line + _time(probe, page)))
    return _list(rows, page)


def _accelerators(group: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    group = probes.best_first(group)
    if not group:
        return _dim("none found")
    rows: list[_Row] = []
    for name, probe in group.items():
        first = [_mark(probe, page), Text(name)]
        lines = probes.device_lines(probe)
        for line in lines:
            rows.append(([*first], line))
            first = [Text(""), Text("")]
        glance = "" if lines else probes.glance(name, probe)
        problem = probes.why(probe)
        if not lines or problem:
            line = ": ".join(part for part in (glance, problem) if part)
            line = line or probe.version or str(probe.presence)
            rows.append(([*first], line + _time(probe, page)))
    return _list(rows, page)


def _libraries(group: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    # A missing driver is one long sentence for a dozen libraries: they share it, to fit a screen.
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, probe in group.items():
        problem = probes.why(probe)
        shared = len(problem) > _SHORT and not page.timing
        key = (probes.state_of(probe), problem) if shared else (name,)
        alike.setdefault(key, []).append(name)
    rows: list[_Row] = []
    for name, *others in alike.values():
        probe = group[name]
        problem = probes.why(probe)
        text = Text(problem or probes.glance(name, probe) or probes.where(probe))
        if len(probe.libraries) > 1 and not problem:
            text.append(f" · {len(probe.libraries)} files", style="dim")
        text.append(_time(probe, page), style="dim")
        rows.append(([_mark(probe, page), name, probe.version], text))
        if others:
            names = ", ".join(f"{other} {group[other].version}".rstrip() for other in others)
            rows.append((["", "", ""], f"the same: {names}"))
    return _list(rows, page)


def _packages(group: dict[str, ProbeReport]) -> RenderableType | None:
    here = []
    for name, probe in group.items():
        if probe.failure:
            here.append(f"{name} (could not tell)")
        elif probes.is_here(probe):
            here.append(probes.glance(name, probe) or f"{name} {probe.version}".rstrip())
    return Text(" · ".join(here))


def _warnings(report: Report, page: Page) -> RenderableType | None:
    found = probes.warnings(report)
    style = "yellow" if page.color else ""
    rows: list[_Row] = [
        ([Text("!", style=style), name], one.message) for name, one in found[:_MOST_WARNINGS]
    ]
    listed = _list(rows, page)
    left = found[_MOST_WARNINGS:]
    if listed is None or not left:
        return listed
    names = " ".join(dict.fromkeys(name for name, _ in left))
    return Group(listed, Text(f"and {len(left)} more: backends info {names}"))


# ---- everything about the probes that were named -------------------------------------------


def _details(report: Report, page: Page) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for name, probe in report.probes.items():
        if parts:
            parts.append(Text(""))
        parts.append(_headline(name, probe, page))
        facts = {key: value for key, value in probe.facts.items() if not probes.is_table(value)}
        reasons = probes.own_reasons(probe) if not probe.libraries else []
        rows = _values(facts, page) + _reasons("because", reasons, page)
        rows += _reasons("look at", probe.warnings, page)
        if listed := _list(rows, page):
            parts.append(_indented(listed))
        for fact, value in probe.facts.items():
            if probes.is_table(value):
                records = cast("list[dict[str, Any]]", value)
                parts.append(_indented(_records(fact, records, page)))
        for device in probe.devices:
            title = f"{device.kind} {device.index}  {device.name}"
            parts.append(_one(device, title, probes.device_rows(device), page))
        for library in probe.libraries:
            values = {"presence": str(library.presence), **probes.library_rows(library)}
            parts.append(_one(library, library.path, values, page))
    return parts


def _headline(name: str, probe: ProbeReport, page: Page) -> Text:
    title = Text.assemble(_mark(probe, page), " ", (probes.label(name), "bold"))
    if probe.version:
        title.append(f" {probe.version}")
    untold = probe.failure is None and probes.state_of(probe) == "unknown"
    ending = probes.MEANINGS["unknown"] if untold else probe.presence or probes.why(probe)
    title.append(f"  {ending}")
    title.append(_time(probe, page), style="dim")
    title.append(f"  {probes.meaning(name)}", style="dim")
    return title


def _records(fact: str, rows: list[dict[str, Any]], page: Page) -> RenderableType:
    """Return a list of records as a table where it fits, else one record below the other."""
    columns = probes.columns(rows)
    cells = [[amount(c, row[c]) if c in row else "" for c in columns] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths) + 2 * len(widths) + 2 <= page.width and not any(
        "\n" in cell for row in cells for cell in row
    ):
        table = Table(
            title=fact, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
        )
        for column in columns:
            table.add_column(Text(column))
        for texts in cells:
            table.add_row(*map(Text, texts))
        return table
    parts: list[RenderableType] = [Text(fact, style="italic")]
    for row in rows:
        listed = [(["", *head], text) for head, text in _values(row, page)]
        if listed:
            listed[0][0][0] = "•" if page.unicode else "-"
        parts.append(_list(listed, page) or Text(""))
    return Group(*parts)


def _one(
    thing: Device | Library, title: str, values: dict[str, object], page: Page
) -> RenderableType:
    """Return a device or a copy of a library."""
    # Two columns, so that a path without a place to break begins beside its mark.
    head = Table.grid(padding=(0, 1, 0, 0))
    head.add_column(no_wrap=True)
    head.add_column(overflow="fold")
    head.add_row(_mark(thing, page), Text(title))
    rows = _values(values, page) + _reasons("because", thing.reasons, page)
    listed = _list(rows, page, indent=6)
    return _indented(Group(head, _indented(listed, 4)) if listed else head)


def _values(values: dict[str, Any], page: Page) -> list[_Row]:
    style = "dim" if page.color else ""
    return [([Text(name, style=style)], amount(name, value)) for name, value in values.items()]


def _reasons(word: str, reasons: Iterable[Reason], page: Page) -> list[_Row]:
    rows: list[_Row] = []
    for reason in reasons:
        text = Text(f"{reason.message} [{reason.code}]")
        if reason.hint:
            text.append(f"\n→ {reason.hint}", style="italic")
        rows.append(([Text(word, style="dim" if page.color else "")], text))
    return rows


def _mark(thing: ProbeReport | Device | Library, page: Page) -> Text:
    state = probes.state_of(thing)
    return Text(_symbol(state, page), style=_MARKS[state][2] if page.color else "")


def _symbol(state: str, page: Page) -> str:
    return _MARKS[state][0 if page.unicode else 1]


def _dim(text: str) -> Text:
    return Text(text, style="dim" if text else "")


def _time(probe: ProbeReport, page: Page) -> str:
    return f"  {probe.duration_seconds * 1000:.1f} ms" if page.timing else ""


# ---- an outcome ----------------------------------------------------------------------------


def outcome(outcome: Outcome, page: Page) -> str:
    """Return what failed, the worst first, with why and what to do; then what was not checked.

    With details also the evidence, what passed, and what does not apply.
    """
    groups: dict[tuple[object, ...], list[Check]] = {}
    for check in outcome.failed():  # those that differ in what was seen alone share their advice
        key = (check.severity, check.code, checks.place(check), check.why, check.hint)
        groups.setdefault(key, []).append(check)
    parts = [_failed(group, page) for group in groups.values()]
    # The title of a hazard says what is wrong, that of a rule what should be.
    passed = "Looked for, and not there" if outcome.kind == "doctor" else "Passed"
    titles = {"Accepted until a day": Status.WAIVED, "Not checked": Status.UNKNOWN}
    if page.details:
        titles |= {"Does not apply": Status.SKIPPED, passed: Status.PASSED}
    for title, status in titles.items():
        if lines := _by_cause(outcome.with_status(status)):
            parts.append(prose.printed((prose.Passage(title, lines),), page))
    text = "\n".join([*parts, f"{checks.summary(outcome)}\n"])
    text = without_commands(text, "·" if page.unicode else ".")
    return text if page.unicode else text.encode("ascii", "replace").decode()


def _by_cause(ended: Iterable[Check]) -> tuple[tuple[str, str], ...]:
    """Return the codes as rows with their cause; those that share one stand together below it."""
    causes: dict[str, list[str]] = {}
    for check in ended:
        causes.setdefault(checks.cause(check), []).append(checks.line(check.code))
    alone = [(codes[0], cause) for cause, codes in causes.items() if len(codes) == 1]
    together = [
        ("", f"{cause}: {', '.join(codes)}") for cause, codes in causes.items() if len(codes) > 1
    ]
    return (*alone, *together)


def _failed(group: list[Check], page: Page) -> str:
    check = group[0]
    fancy, plain, color = _SEVERITIES[check.severity]
    head = f"{fancy if page.unicode else plain} {check.severity}"
    if page.color:  # 39 ends the colour alone: the heading around it stays bold
        head = f"\033[{color}m{head}\033[39m"
    place = f" ({declared})" if (declared := checks.place(check)) else ""
    times = f", {len(group)} times" if len(group) > 1 else ""
    dash = "- " if len(group) > 1 else ""
    width = len("type")  # so that a command stands below the advice
    lines = [("", f"{dash}{checks.sentence(each)}") for each in group]
    lines += [(word.ljust(width), text) for word, text in checks.advice(check) if word != "type"]
    if page.details:
        seen = dict.fromkeys(row for each in group for row in checks.evidence(each, units=True))
        lines += [("seen", f"{name} = {value}") for name, value in seen]
    heading = f"{head} {checks.line(check.code)}{place}{times}"
    text = prose.printed((prose.Passage(heading, tuple(lines)),), page)
    # On lines of their own and never broken: they are there to be copied.
    commands = dict.fromkeys(checks.line(each.command) for each in group if each.command)
    return text + "".join(f"  {'type'.ljust(width)}  {command}\n" for command in commands)
