"""The page for people: what is usable, what is here but not usable and why, what is not here."""

import io
from typing import Any, cast

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mlbackends.cli import catalogue
from mlbackends.cli.terminal import Page
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Device, Library, Presence, ProbeReport, Report

_MARKS = {
    Presence.USABLE: ("✓", "+", "green"),
    Presence.LOADABLE: ("◐", "~", "cyan"),
    Presence.FOUND: ("·", "-", "yellow"),
    Presence.ABSENT: (" ", " ", "dim"),
}
_BROKEN = ("✗", "x", "red")
_NOT_ITS_FAULT = {"no-use-check", "no-driver", "no-device"}
"""Reasons for which a library that opens is not called broken."""


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
    text = "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
    return text if page.unicode else _ascii(text)


def _ascii(text: str) -> str:
    for fancy, plain in (("·", "-"), ("…", "~"), ("×", "x"), ("→", "->"), ("—", "-")):
        text = text.replace(fancy, plain)
    return text


# ---- the overview --------------------------------------------------------------------------


def _overview(report: Report, page: Page) -> list[RenderableType]:
    by_group: dict[str, dict[str, ProbeReport]] = {group: {} for group in catalogue.GROUPS}
    for name, probe in report.probes.items():
        by_group[catalogue.group(name)][name] = probe
    here = {name: probe for name, probe in by_group["library"].items() if _is_here(probe)}
    accelerators = {
        name: probe for name, probe in by_group["accelerator"].items() if _is_here(probe)
    }
    parts: list[RenderableType] = []
    _section(parts, "Machine", _machine(by_group["machine"], page))
    _section(parts, "Accelerators", _accelerators(accelerators, page))
    _section(parts, "Libraries", _rows(here, page))
    _section(parts, "Packages", _packages(by_group["framework"]))
    _section(parts, "Not here", _not_here(report))
    _section(parts, "Look at", _warnings(report, page))
    parts.append(_footer(report, page))
    return parts


def _is_here(probe: ProbeReport) -> bool:
    return probe.presence is not Presence.ABSENT or probe.failure is not None


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
        line = catalogue.glance(name, probe)
        if probe.failure:
            grid.add_row(name, _could_not_tell(probe))
        elif line:
            grid.add_row(name, Text(line + _time(probe, page)))
    return grid if grid.rows else None


def _accelerators(probes: dict[str, ProbeReport], page: Page) -> RenderableType:
    if not probes:
        return Text("none found", style="dim")
    grid = _grid({"no_wrap": True}, {"no_wrap": True}, {"overflow": "fold"})
    for name, probe in probes.items():
        mark = _mark(probe, page)
        for count, device in _alike(probe.devices):
            grid.add_row(mark, name, _device_line(count, device))
            mark, name = Text(""), ""
        if probe.failure:
            grid.add_row(mark, name, _could_not_tell(probe))
        elif probe.reasons and (not probe.devices or probe.presence is not Presence.USABLE):
            what = catalogue.glance(name, probe) or probe.version
            said = f"{what}: " if what and name else ""
            grid.add_row(mark, name, Text(said + _why(probe.reasons) + _time(probe, page)))
        elif name:
            line = catalogue.glance(name, probe) or probe.version or str(probe.presence)
            grid.add_row(mark, name, Text(line + _time(probe, page)))
    return grid


def _alike(devices: tuple[Device, ...]) -> list[tuple[int, Device]]:
    """Count devices that look the same at a glance."""
    groups: dict[tuple[object, ...], list[Device]] = {}
    for device in devices:
        key = (device.name, device.memory_bytes, device.capability, device.presence, device.reasons)
        groups.setdefault(key, []).append(device)
    return [(len(group), group[0]) for group in groups.values()]


def _device_line(count: int, device: Device) -> Text:
    parts = [f"{count} × {device.name or device.kind}" if count > 1 else device.name or device.kind]
    if device.memory_bytes:
        parts.append(catalogue.binary_size(device.memory_bytes))
    if device.capability:
        parts.append(device.capability)
    if device.driver:
        parts.append(f"driver {device.driver}")
    if device.reasons:
        parts.append(_why(device.reasons))
    return Text(" · ".join(parts))


def _rows(probes: dict[str, ProbeReport], page: Page) -> RenderableType | None:
    grid = _grid({"no_wrap": True}, {"no_wrap": True}, {"no_wrap": True}, {"overflow": "fold"})
    order = sorted(probes, key=lambda name: (-rung(probes[name]), name))
    for name in order:
        probe = probes[name]
        grid.add_row(_mark(probe, page), name, probe.version, _library_line(name, probe, page))
    return grid if probes else None


def rung(probe: ProbeReport) -> int:
    """Return the rung's number; what could not be told stands below all."""
    return probe.presence.rung if probe.presence else -1


def _library_line(name: str, probe: ProbeReport, page: Page) -> Text:
    if probe.failure:
        return _could_not_tell(probe)
    said = catalogue.glance(name, probe)
    text = Text(said or _where(probe))
    if len(probe.libraries) > 1:
        text.append(f" · {len(probe.libraries)} files", style="dim")
    reasons = [reason for reason in probe.reasons if reason.code != "no-use-check"]
    if reasons and probe.presence is not Presence.USABLE:
        text = Text(_why(tuple(reasons)))
    text.append(_time(probe, page), style="dim")
    return text


def _where(probe: ProbeReport) -> str:
    """Say where the copy that speaks for the probe comes from: its package, or its path."""
    best = max(probe.libraries, key=lambda one: (one.wins, one.presence.rung), default=None)
    if best is None:
        return ""
    if best.found_by.startswith("inside "):
        return f"{best.found_by}: {best.owner or best.path}"
    return best.owner if best.owner and best.found_by in ("site-packages", "conda") else best.path


def _packages(probes: dict[str, ProbeReport]) -> RenderableType | None:
    here = []
    for name, probe in probes.items():
        if probe.failure:
            here.append(f"{name} (could not tell)")
        elif _is_here(probe):
            here.append(catalogue.glance(name, probe) or f"{name} {probe.version}".rstrip())
    return Text(" · ".join(here)) if here else None


def _not_here(report: Report) -> RenderableType | None:
    names = [
        name
        for name, probe in report.probes.items()
        if not _is_here(probe) and catalogue.group(name) != "machine"
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
        f"{_symbol(_MARKS[Presence.USABLE], page)} computed something right",
        f"{_symbol(_MARKS[Presence.LOADABLE], page)} opens and answers",
        f"{_symbol(_MARKS[Presence.FOUND], page)} found only",
        f"{_symbol(_BROKEN, page)} broken",
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
            if not _is_table(value):
                grid.add_row(fact, Text(catalogue.amount(fact, value)))
        for reason in probe.reasons if not probe.libraries else ():
            grid.add_row("because", _reason(reason))
        for warning in probe.warnings:
            grid.add_row("look at", _reason(warning))
        if grid.rows:
            parts.append(Padding(grid, (0, 0, 0, 2)))
        for fact, value in probe.facts.items():
            if _is_table(value):
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
    title.append(f"  {probe.presence or _could_not_tell(probe)}")
    title.append(_time(probe, page), style="dim")
    title.append(f"  {catalogue.meaning(name)}", style="dim")
    return title


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _table(fact: str, rows: list[dict[str, Any]]) -> Table:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(title=fact, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(catalogue.amount(c, row[c])) if c in row else "" for c in columns))
    return table


def _device(device: Device, page: Page) -> RenderableType:
    title = Text.assemble(
        _rung_mark(device.presence, device.reasons, page), f" {device.kind} {device.index}  "
    )
    title.append(device.name)
    grid = _grid({"no_wrap": True, "style": "dim" if page.color else ""}, {"overflow": "fold"})
    shown = {
        "memory_bytes": device.memory_bytes,
        "capability": device.capability,
        "driver": device.driver,
        "pci_address": device.pci_address,
        "uuid": device.uuid,
        "serial": device.serial,
        "numa_node": device.numa_node,
        "features": list(device.features),
        **device.facts,
        **device.volatile,
    }
    for name, value in shown.items():
        if value not in (None, "", []):
            grid.add_row(name, Text(catalogue.amount(name, value)))
    for reason in device.reasons:
        grid.add_row("because", _reason(reason))
    return Group(title, Padding(grid, (0, 0, 0, 4)))


def _library(library: Library, page: Page) -> RenderableType:
    title = Text.assemble(_rung_mark(library.presence, library.reasons, page), " ", library.path)
    grid = _grid({"no_wrap": True, "style": "dim" if page.color else ""}, {"overflow": "fold"})
    grid.add_row("rung", Text(str(library.presence)))
    for name in ("version", "soname", "owner", "found_by"):
        if getattr(library, name):
            grid.add_row(name, Text(getattr(library, name)))
    if library.wins or library.wins_because:
        grid.add_row("wins" if library.wins else "shadowed", Text(library.wins_because))
    if isinstance(library.used, bool):
        grid.add_row("used", Text("the process has it mapped" if library.used else "not mapped"))
    for fact, value in library.facts.items():
        grid.add_row(fact, Text(catalogue.amount(fact, value)))
    for reason in library.reasons:
        grid.add_row("because", _reason(reason))
    return Group(title, Padding(grid, (0, 0, 0, 4)))


# ---- words and marks -------------------------------------------------------------------------


def _mark(probe: ProbeReport, page: Page) -> Text:
    if probe.failure:
        return Text("?", style="red" if page.color else "")
    return _rung_mark(probe.presence or Presence.ABSENT, probe.reasons, page)


def _rung_mark(presence: Presence, reasons: tuple[Reason, ...], page: Page) -> Text:
    codes = {reason.code for reason in reasons} - _NOT_ITS_FAULT
    here = presence not in (Presence.USABLE, Presence.ABSENT)
    mark = _BROKEN if here and codes else _MARKS[presence]
    return Text(_symbol(mark, page), style=mark[2] if page.color else "")


def _symbol(mark: tuple[str, str, str], page: Page) -> str:
    return mark[0] if page.unicode else mark[1]


def _why(reasons: tuple[Reason, ...]) -> str:
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return reasons[0].message + more if reasons else ""


def _reason(reason: Reason) -> Text:
    text = Text(f"{reason.message} [{reason.code}]")
    if reason.hint:
        text.append(f"\n→ {reason.hint}", style="italic")
    return text


def _could_not_tell(probe: ProbeReport) -> Text:
    return Text(f"could not tell: {probe.failure.message}" if probe.failure else "")


def _time(probe: ProbeReport, page: Page) -> str:
    return f"  {probe.duration_seconds * 1000:.1f} ms" if page.timing else ""
