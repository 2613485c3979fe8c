"""Everything about one probe, as a part of a page that opens and closes."""

from mlbackends.model.records import Device, Library, ProbeReport
from mlbackends.model.registry import facts_of
from mlbackends_cli import catalogue
from mlbackends_cli.verdict import device_rows, is_table, library_rows, own_reasons, state_of
from mlbackends_cli.web.elements import (
    badge,
    element,
    escaped,
    known,
    plain_table,
    reason,
    reasons,
    records,
    words,
)

_MOST = 200
"""So many devices and copies of a library are shown; how many more there are is told."""


def details(name: str, probe: ProbeReport, *, is_open: bool, timing: bool) -> str:
    """Return a probe with its facts and what they mean, its devices, and every copy of a library."""
    meaning = catalogue.meaning(name)
    state = state_of(probe)
    title = [
        # Of a machine's parts, "found" would sound as if something were missing.
        badge(state) if state != "found" or catalogue.group(name) != "machine" else "",
        words("strong", name),
        words("span", probe.version) if probe.version else "",
        words("span", f"{catalogue.label(name)}: {meaning}" if meaning else "", "dim"),
        words("span", f"{probe.duration_seconds * 1000:.1f} ms", "dim") if timing else "",
    ]
    inside = [
        words("p", f"could not tell: {probe.failure.message}", "broken") if probe.failure else "",
        _warnings(probe),
        reasons(own_reasons(probe)) if not probe.libraries else "",
        _facts(name, probe),
        *(_device(device) for device in probe.devices[:_MOST]),
        _more(len(probe.devices), "devices"),
        *(_library(library) for library in probe.libraries[:_MOST]),
        _more(len(probe.libraries), "copies"),
        words("p", f"Source: {probe.source}", "dim") if probe.source else "",
    ]
    # The anchor is inside, so that browsers open the element when they go there.
    body = element("div", *inside, kind="inside", id=f"probe-{name}")
    opened = ' open=""' if is_open else ""
    return f'<details data-filter=""{opened}>{element("summary", *title)}{body}</details>\n'


def _more(count: int, what: str) -> str:
    return (
        words("p", f"and {count - _MOST} more {what}; --format json has all")
        if count > _MOST
        else ""
    )


def _warnings(probe: ProbeReport) -> str:
    items = [element("li", reason(one)) for one in probe.warnings]
    return element("ul", *items, kind="warnings") if items else ""


def _facts(name: str, probe: ProbeReport) -> str:
    declared = facts_of(name)
    body, tables = [], []
    for fact, value in probe.facts.items():
        about = declared[fact].doc if fact in declared else ""
        if is_table(value):
            assert isinstance(value, list)
            tables.append(records(f"{fact}: {about}" if about else fact, value))
            continue
        body.append(
            [
                element("th", words("code", fact), scope="row"),
                words("td", catalogue.amount(fact, value)),
                words("td", about, "about"),
            ]
        )
    first = plain_table((), body, "facts") if body else ""
    return first + "".join(tables)


def _device(device: Device) -> str:
    name = f"{device.kind} {device.index}: {device.name}".removesuffix(": ")
    title = element("h3", badge(state_of(device)), " ", escaped(name))
    rows = {key: value for key, value in device_rows(device).items() if not is_table(value)}
    return element("div", title, reasons(device.reasons), known(rows), kind="copy")


def _library(library: Library) -> str:
    title = element("h3", badge(state_of(library)), " ", words("code", library.path))
    return element(
        "div", title, reasons(library.reasons), known(library_rows(library)), kind="copy"
    )
