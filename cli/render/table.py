"""The page for people: what is usable, what is here but not usable and why, what is not here."""

import io
import re
from typing import Any, cast

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mlbackends.cli import catalogue, verdict
from mlbackends.cli.terminal import Page
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device, Library, ProbeReport, Report

_MARKS = {
    "usable": ("✓", "+", "green"),
    "loadable": ("◐", "~", "cyan"),
    "found": ("·", "-", "yellow"),
    "broken": ("✗", "x", "red"),
    "unknown": ("?", "?", "red"),
    "absent": (" ", " ", "dim"),
}
_OBEYED = (
    "\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"
    "|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_SHORT = 40
"""So long a reason may be, in characters, to be told again for each library."""


def report(report: Report, page: Page) -> str:
    """Return the overview, or every detail where the page asks for details."""
    parts = _details(report, page) if page.details else _overview(report, page)
    return _printed(Group(*parts), page)


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
    # A report may hold what a terminal obeys; of that only rich's own colours may reach one.
    text = re.sub(_OBEYED, "\ufffd", file.getvalue())
    text = "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n") + "\n"
    return text if page.unicode else _ascii(text)


def _ascii(text: str) -> str:
    for fancy, plain in (("·", "-"), ("…", "~"), ("×", "x"), ("→", "->"), ("—", "-")):
        text = text.replace(fancy, plain)
    return text


# ---- the overview --------------------------------------------------------------------------


def _overview(report: Report, page: Page) -> list[RenderableType]:
    groups = verdict.grouped(report)
    parts: list[RenderableType] = []
    _section(parts, "Machine", _machine(groups["machine"], page))
    accelerators = verdict.by_rung(groups["accelerator"])
    if groups["accelerator"]:
        _section(parts, "Accelerators", _accelerators(accelerators, page))
    _section(parts, "Libraries", _rows(verdict.by_rung(groups["library"]), page))
    _section(parts, "Packages", _packages(groups["framework"]))
    _section(parts, "Not here", _not_here(report))
    _section(parts, "Look at", _warnings(report, page))
    parts.append(_footer(report, page))
    return parts


def _section(parts: list[RenderableType], title: str, content: RenderableType | None) -> None:
    if content is not None:
        parts += [Text(title, style="bold"), Padding(content, (0, 0, 0, 2))]


def _grid(*columns: dict[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for options in columns:
        grid.add_column(**options)
    return grid


def _machine(probes: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    grid = _grid({"no_wrap": True}, {"overflow": "fold"})
    for name, probe in probes.items():
        line = verdict.why(probe) if probe.failure else catalogue.glance(name, probe)
        if line:
            grid.add_row(name, Text(line + _time(probe, page)))
    return grid if grid.rows else None


def _accelerators(probes: dict[str, ProbeReport], page: Page) -> RenderableType:
    if not probes:
        return Text("none found", style="dim")
    grid = _grid({"no_wrap": True}, {"no_wrap": True}, {"overflow": "fold"})
    for name, probe in probes.items():
        mark = _mark(probe, page)
        for count, device in verdict.alike(probe.devices):
            grid.add_row(mark, name, Text(verdict.device_line(count, device)))
            mark, name = Text(""), ""
        said = catalogue.glance(name, probe) if name else ""
        problem = verdict.why(probe)
        if said or problem or name:
            line = ": ".join(part for part in (said, problem) if part)
            line = line or probe.version or str(probe.presence)
            grid.add_row(mark, name, Text(line + _time(probe, page)))
    return grid


def _rows(probes: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    grid = _grid({"no_wrap": True}, {"no_wrap": True}, {"no_wrap": True}, {"overflow": "fold"})
    for names in _with_one_reason(probes, page):
        name, *others = names
        probe = probes[name]
        problem = verdict.why(probe)
        said = Text(problem or _place(name, probe))
        if len(probe.libraries) > 1 and not problem:
            said.append(f" · {len(probe.libraries)} files", style="dim")
        said.append(_time(probe, page), style="dim")
        grid.add_row(_mark(probe, page), name, probe.version, said)
        if others:
            them = ", ".join(f"{other} {probes[other].version}".rstrip() for other in others)
            grid.add_row("", "", "", Text(f"the same: {them}"))
    return grid if probes else None


def _with_one_reason(probes: dict[str, ProbeReport], page: Page) -> list[list[str]]:
    """Put the names together whose long reason is the same: the page shall fit a screen.

    A missing driver is one sentence for a dozen libraries.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, probe in probes.items():
        problem = verdict.why(probe)
        shared = len(problem) > _SHORT and not page.timing
        key = (verdict.state_of(probe), problem) if shared else (name,)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def _place(name: str, probe: ProbeReport) -> str:
    return catalogue.glance(name, probe) or verdict.where(probe)


def _packages(probes: dict[str, ProbeReport]) -> RenderableType | None:
    here = []
    for name, probe in probes.items():
        if probe.failure:
            here.append(f"{name} (could not tell)")
        elif verdict.is_here(probe):
            here.append(catalogue.glance(name, probe) or f"{name} {probe.version}".rstrip())
    return Text(" · ".join(here)) if here else None


def _not_here(report: Report) -> RenderableType | None:
    names = [
        name
        for name, probe in report.probes.items()
        if not verdict.is_here(probe) and catalogue.group(name) != "machine"
    ]
    return Text(", ".join(names), style="dim") if names else None


def _warnings(report: Report, page: Page) -> RenderableType | None:
    grid = _grid({"no_wrap": True}, {"no_wrap": True}, {"overflow": "fold"})
    for name, probe in report.probes.items():
        for warning in probe.warnings:
            grid.add_row(
                Text("!", style="yellow" if page.color else ""), name, Text(warning.message)
            )
    return grid if grid.rows else None


def _footer(report: Report, page: Page) -> Text:
    marks = [
        f"{_symbol(_MARKS[state], page)} {verdict.MEANINGS[state]}"
        for state in ("usable", "loadable", "found", "broken")
    ]
    took = f"   {report.duration_seconds:.2f} s" if page.timing else ""
    return Text("   ".join(marks) + took, style="dim")


# ---- everything about the probes that were named -------------------------------------------


def _details(report: Report, page: Page) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for name, probe in report.probes.items():
        if parts:
            parts.append(Text(""))
        parts.append(_headline(name, probe, page))
        grid = _grid({"no_wrap": True, "style": "dim" if page.color else ""}, {"overflow": "fold"})
        for fact, value in probe.facts.items():
            if not verdict.is_table(value):
                grid.add_row(fact, Text(catalogue.amount(fact, value)))
        for reason in probe.reasons if not probe.libraries else ():
            grid.add_row("because", _reason(reason))
        for warning in probe.warnings:
            grid.add_row("look at", _reason(warning))
        if grid.rows:
            parts.append(Padding(grid, (0, 0, 0, 2)))
        for fact, value in probe.facts.items():
            if verdict.is_table(value):
                parts.append(
                    Padding(_table(fact, cast("list[dict[str, Any]]", value)), (0, 0, 0, 2))
                )
        parts += [Padding(_device(device, page), (0, 0, 0, 2)) for device in probe.devices]
        parts += [Padding(_library(library, page), (0, 0, 0, 2)) for library in probe.libraries]
    return parts


def _headline(name: str, probe: ProbeReport, page: Page) -> Text:
    title = Text.assemble(_mark(probe, page), " ", (catalogue.label(name), "bold"))
    if probe.version:
        title.append(f" {probe.version}")
    title.append(f"  {probe.presence or verdict.why(probe)}")
    title.append(_time(probe, page), style="dim")
    title.append(f"  {catalogue.meaning(name)}", style="dim")
    return title


def _table(fact: str, rows: list[dict[str, Any]]) -> Table:
    columns = verdict.columns(rows)
    table = Table(title=fact, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(catalogue.amount(c, row[c])) if c in row else "" for c in columns))
    return table


def _device(device: Device, page: Page) -> RenderableType:
    title = f"{device.kind} {device.index}  {device.name}"
    return _known(_mark(device, page), title, verdict.device_rows(device), device.reasons, page)


def _library(library: Library, page: Page) -> RenderableType:
    told = {"rung": str(library.presence), **verdict.library_rows(library)}
    return _known(_mark(library, page), library.path, told, library.reasons, page)


def _known(
    mark: Text,
    title: str,
    told: dict[str, object],
    reasons: tuple[Reason, ...],
    page: Page,
) -> RenderableType:
    # Two columns, so that a path without a place to break begins beside its mark.
    head = Table.grid(padding=(0, 1, 0, 0))
    head.add_column(no_wrap=True)
    head.add_column(overflow="fold")
    head.add_row(mark, Text(title))
    grid = _grid({"no_wrap": True, "style": "dim" if page.color else ""}, {"overflow": "fold"})
    for name, value in told.items():
        grid.add_row(name, Text(catalogue.amount(name, value)))
    for reason in reasons:
        grid.add_row("because", _reason(reason))
    return Group(head, Padding(grid, (0, 0, 0, 4)))


# ---- words and marks -------------------------------------------------------------------------


def _mark(thing: ProbeReport | Device | Library, page: Page) -> Text:
    mark = _MARKS[verdict.state_of(thing)]
    return Text(_symbol(mark, page), style=mark[2] if page.color else "")


def _symbol(mark: tuple[str, str, str], page: Page) -> str:
    return mark[0] if page.unicode else mark[1]


def _reason(reason: Reason) -> Text:
    text = Text(f"{reason.message} [{reason.code}]")
    if reason.hint:
        text.append(f"\n→ {reason.hint}", style="italic")
    return text


def _time(probe: ProbeReport, page: Page) -> str:
    return f"  {probe.duration_seconds * 1000:.1f} ms" if page.timing else ""
