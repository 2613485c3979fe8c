"""The page for people on a terminal: reports, outcomes and lists, as wide as the page."""

import io
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segments
from rich.table import Table
from rich.text import Text

from mlbackends.model.audit import Check, Outcome, Severity
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device, Library, ProbeReport, Report
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import checks, probes, prose
from mlbackends_cli.text.plain import amount, cleaned, without_commands
from mlbackends_cli.text.prose import Listing

_Line = tuple[list[str | Text], str | Text]
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
_SHORT = 40
"""A reason of at most so many characters is repeated for each library."""
_NARROW = 24
"""Text that would get fewer columns than this begins on a line of its own."""
_MOST_WARNINGS = 10


def _printed(parts: Iterable[RenderableType], page: Page) -> str:
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
    # Before rich adds its colours: those of a value would be obeyed too, and may hide the rest.
    segments = (each._replace(text=cleaned(each.text)) for each in console.render(Group(*parts)))
    console.print(Segments(segments), end="")
    return _finished(file.getvalue(), page)


def _finished(text: str, page: Page) -> str:
    text = without_commands("\n".join(map(str.rstrip, text.split("\n"))).rstrip("\n") + "\n")
    return page.fitted(text)


def _indented(content: RenderableType, columns: int = 2) -> RenderableType:
    return Padding(content, (0, 0, 0, columns))


def listing(listing: Listing, page: Page) -> str:
    """Return groups of rows below their titles; rows that differ from the usual stand out."""
    widths, is_whole = _widths(listing, page)
    if is_whole and not page.color:
        return _finished(cleaned(_plain_lines(listing, widths)), page)
    parts: list[RenderableType] = []
    if widths:
        parts.append(_grid([[Text(column, style="dim") for column in listing.columns]], widths))
    for at, group in enumerate(listing.groups):
        parts += [Text(group.title, style="bold")] if group.title else []
        indent = 2 if group.title else 0
        rows = []
        for number, (first, *others) in enumerate(group.rows):
            style = "yellow" if (at, number) in listing.marked else ""
            if widths:
                cells = (" " * indent + first, *others)
                rows.append([Text(cell, style=style) for cell in cells])
                continue
            # On a page that is too narrow, the other cells stand below the first.
            titled = zip(listing.columns[1:], others, strict=True)
            below = " · ".join(f"{title} {cell}" for title, cell in titled if cell)
            parts.append(_indented(Text(first, style=style, overflow="fold"), indent))
            if below:
                parts.append(_indented(Text(below, style=style, overflow="fold"), indent + 2))
        parts += [_grid(rows, widths)] if rows else []
    return _printed([*parts, *(Text(note, style="dim") for note in listing.notes)], page)


def _grid(rows: Iterable[Iterable[Text]], widths: Iterable[int]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for width in widths:
        grid.add_column(overflow="fold", width=width)
    for row in rows:
        grid.add_row(*row)
    return grid


def _plain_lines(listing: Listing, widths: Sequence[int]) -> str:
    """Return a listing whose cells all fit, as rich would print it in fifty times the time."""
    rows = [listing.columns]
    for group in listing.groups:
        indent = "  " if group.title else ""
        rows += [(group.title,)] if group.title else []
        rows += [(indent + first, *others) for first, *others in group.rows]
    rows += [(note,) for note in listing.notes]
    lines = (
        "  ".join(
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=False)
        )
        for row in rows
    )
    return "\n".join(lines)


def _widths(listing: Listing, page: Page) -> tuple[list[int], bool]:
    """Return how wide each column is, so that lines break between words alone; [] where that fails.

    And whether each cell is printed whole, on one line.
    """
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
        return [], False
    widths = list(most)
    while sum(widths) > room:
        at = max(range(len(widths)), key=lambda each: (widths[each] > least[each], widths[each]))
        widths[at] -= 1
    texts = (*(group.title for group in listing.groups), *listing.notes)
    fits = widths == most and all(cell_len(text) <= page.width for text in texts)
    return widths, fits


def report(report: Report, page: Page) -> str:
    """Return the overview, or every detail where the page asks for details."""
    return _printed(_details(report, page) if page.details else _overview(report, page), page)


def _overview(report: Report, page: Page) -> list[RenderableType]:
    rows = probes.overview(report)
    packages = [
        f"{row.name} (could not tell)"
        if row.probe.failure
        else probes.glance(row.name, row.probe) or f"{row.name} {row.probe.version}".rstrip()
        for row in sorted(rows["framework"])
    ]
    asked_for = any(probes.group(name) == "accelerator" for name in report.probes)
    none_found = Text("none found", style="dim") if asked_for else None
    sections = {
        "Machine": _lines(
            [([row.name], row.lines[0] + _time(row.probe, page)) for row in rows["machine"]], page
        ),
        "Accelerators": _lines(_accelerators(rows["accelerator"], page), page) or none_found,
        "Libraries": _lines(_libraries(rows["library"], page), page),
        "Uses": _uses(report, page),
        "Packages": Text(" · ".join(packages)),
        "Not here": Text(", ".join(probes.missing(report)), style="dim"),
        "Could not tell": _lines(
            [([name], why) for name, why in probes.undetermined(report).items()], page
        ),
        "Look at": _warnings(report, page),
    }
    parts: list[RenderableType] = []
    for title, content in sections.items():
        if content is not None and not (isinstance(content, Text) and not content.plain):
            parts += [Text(title, style="bold"), _indented(content)]
    states = ("usable", "loadable", "found", "broken")
    marks = [f"{page.sign(*_MARKS[state][:2])} {probes.MEANINGS[state]}" for state in states]
    took = f"   {report.duration_seconds:.2f} s" if page.timing else ""
    return [*parts, Text("   ".join(marks) + took, style="dim")]


def _lines(rows: list[_Line], page: Page, indent: int = 2) -> RenderableType | None:
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


def _accelerators(rows: Iterable[probes.Row], page: Page) -> list[_Line]:
    found: list[_Line] = []
    for name, probe, lines, problem in rows:
        texts = [*lines, problem] if probe.devices else [": ".join(filter(None, [*lines, problem]))]
        texts = [*filter(None, texts)] or [probe.version or str(probe.presence)]
        if problem or not probe.devices:
            texts[-1] += _time(probe, page)
        first = [_mark(probe, page), Text(name)]
        for text in texts:
            found.append(([*first], text))
            first = [Text(""), Text("")]
    return found


def _libraries(rows: Iterable[probes.Row], page: Page) -> list[_Line]:
    # A missing driver is one long sentence for a dozen libraries: they share it, to fit a screen.
    alike: dict[tuple[str, ...], list[probes.Row]] = {}
    for row in rows:
        is_shared = len(row.problem) > _SHORT and not page.timing
        key = (probes.state_of(row.probe), row.problem) if is_shared else (row.name,)
        alike.setdefault(key, []).append(row)
    found: list[_Line] = []
    for (name, probe, lines, problem), *others in alike.values():
        text = Text(problem or "".join(lines))
        if len(probe.libraries) > 1 and not problem:
            text.append(f" · {len(probe.libraries)} files", style="dim")
        text.append(_time(probe, page), style="dim")
        found.append(([_mark(probe, page), name, probe.version], text))
        if others:
            names = ", ".join(f"{each.name} {each.probe.version}".rstrip() for each in others)
            found.append((["", "", ""], f"the same: {names}"))
    return found


def _uses(report: Report, page: Page) -> RenderableType | None:
    """Return what each package takes: with the files where they fit."""
    rows = probes.uses(report.probes.get("uses"))
    for left_out in ("threads_because", "path", "runtime"):
        rows = [{name: row[name] for name in row if name != left_out} for row in rows]
        if isinstance(table := _records("", rows, page), Table):
            break
    return table if rows else None


def _warnings(report: Report, page: Page) -> RenderableType | None:
    found = probes.warnings(report)
    rows: list[_Line] = [
        ([Text("!", style="yellow"), name], one.message) for name, one in found[:_MOST_WARNINGS]
    ]
    listed = _lines(rows, page)
    left = found[_MOST_WARNINGS:]
    if listed is None or not left:
        return listed
    names = " ".join(dict.fromkeys(name for name, _ in left))
    return Group(listed, Text(f"and {len(left)} more: backends info {names}"))


# ---- everything about the probes that were named -------------------------------------------


def _details(report: Report, page: Page) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for name, probe in report.probes.items():
        parts += [Text("")] if parts else []
        headline = Text.assemble(_mark(probe, page), " ", (probes.label(name), "bold"))
        headline.append(f" {probe.version}" if probe.version else "")
        undetermined = probe.failure is None and probes.state_of(probe) == "unknown"
        state = probes.MEANINGS["unknown"] if undetermined else probe.presence
        headline.append(f"  {state or probes.why(probe)}")
        headline.append(f"{_time(probe, page)}  {probes.meaning(name)}", style="dim")
        parts.append(headline)
        facts, tables = probes.shown_facts(name, probe)
        reasons = probes.own_reasons(probe) if not probe.libraries else []
        rows = _values(facts) + _reasons("because", reasons) + _reasons("look at", probe.warnings)
        if listed := _lines(rows, page):
            parts.append(_indented(listed))
        parts += [_indented(_records(fact, rows, page)) for fact, rows in tables.items()]
        for device in probe.devices:
            title = f"{device.kind} {device.index}  {device.name}"
            parts.append(_thing(device, title, probes.values_of(device), page))
        for library in probe.libraries:
            values = {"presence": str(library.presence), **probes.values_of(library)}
            parts.append(_thing(library, library.path, values, page))
    return parts


def _records(fact: str, rows: probes.Table, page: Page) -> RenderableType:
    """Return a list of records as a table where it fits, else one record below the other."""
    columns = probes.columns(rows)
    cells = [[amount(c, row[c]) if c in row else "" for c in columns] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths) + 2 * len(widths) + 2 <= page.width and not any(
        "\n" in cell for row in cells for cell in row
    ):
        table = Table(
            title=fact or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
        )
        for column in columns:
            table.add_column(Text(column))
        for texts in cells:
            table.add_row(*map(Text, texts))
        return table
    parts: list[RenderableType] = [Text(fact, style="italic")]
    for row in rows:
        here = {name: value for name, value in row.items() if value != ""}
        listed: list[_Line] = [(["", *head], text) for head, text in _values(here)]
        if listed:
            listed[0][0][0] = page.sign("•", "-")
        parts.append(_lines(listed, page) or Text(""))
    return Group(*parts)


def _thing(
    thing: Device | Library, title: str, values: Mapping[str, object], page: Page
) -> RenderableType:
    """Return a device or a copy of a library."""
    # Two columns, so that a path without a place to break begins beside its mark.
    head = Table.grid(padding=(0, 1, 0, 0))
    head.add_column(no_wrap=True)
    head.add_column(overflow="fold")
    head.add_row(_mark(thing, page), Text(title))
    listed = _lines(_values(values) + _reasons("because", thing.reasons), page, indent=6)
    return _indented(Group(head, _indented(listed, 4)) if listed else head)


def _values(values: Mapping[str, object]) -> list[_Line]:
    return [([Text(name, style="dim")], amount(name, value)) for name, value in values.items()]


def _reasons(word: str, reasons: Iterable[Reason]) -> list[_Line]:
    rows: list[_Line] = []
    for reason in reasons:
        text = Text(f"{reason.message} [{reason.code}]")
        if reason.hint:
            text.append(f"\n→ {reason.hint}", style="italic")
        rows.append(([Text(word, style="dim")], text))
    return rows


def _mark(thing: ProbeReport | Device | Library, page: Page) -> Text:
    *signs, style = _MARKS[probes.state_of(thing)]
    return Text(page.sign(*signs), style=style)


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
    for title, _, found in checks.others(outcome, details=page.details):
        # The title of a hazard says what is wrong, that of a rule what should be.
        is_hazard = outcome.kind == "doctor" and title == "Passed"
        heading = "Looked for, and not there" if is_hazard else title
        parts.append(prose.printed((prose.Passage(heading, _by_cause(found)),), page))
    text = "\n".join([*parts, f"{checks.summary(outcome)}\n"])
    return page.fitted(without_commands(text, page.sign("·", ".")))


def _by_cause(ended: Iterable[Check]) -> tuple[tuple[str, str], ...]:
    """Return the codes as rows with their cause; those that share one stand together below it."""
    causes: dict[str, list[str]] = {}
    for check in ended:
        causes.setdefault(checks.cause(check), []).append(checks.code(check))
    alone = [(codes[0], cause) for cause, codes in causes.items() if len(codes) == 1]
    together = [
        ("", f"{cause}: {', '.join(codes)}") for cause, codes in causes.items() if len(codes) > 1
    ]
    return (*alone, *together)


def _failed(group: list[Check], page: Page) -> str:
    check = group[0]
    *signs, color = _SEVERITIES[check.severity]
    head = f"{page.sign(*signs)} {check.severity}"
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
    heading = f"{head} {checks.code(check)}{place}{times}"
    text = prose.printed((prose.Passage(heading, tuple(lines)),), page)
    # On lines of their own and never broken: they are there to be copied.
    commands = dict.fromkeys(checks.line(each.command) for each in group if each.command)
    return text + "".join(f"  {'type'.ljust(width)}  {command}\n" for command in commands)
