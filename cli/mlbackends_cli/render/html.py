"""HTML: one page that needs nothing but itself, with a picture of the machine."""

from mlbackends.model.records import ProbeReport, Report
from mlbackends_cli import catalogue, verdict
from mlbackends_cli.picture.drawing import picture
from mlbackends_cli.terminal import Page
from mlbackends_cli.web.details import details
from mlbackends_cli.web.document import document
from mlbackends_cli.web.elements import badge, element, escaped, plain_table, reason, section, words
from mlbackends_cli.web.style import SCRIPT, STYLE

_WIDE, _NARROW = 1100, 360


def report(report: Report, page: Page) -> str:
    """Return the page; the details are open where the page asks for them."""
    groups = verdict.grouped(report)
    libraries = {**groups["library"], **groups["framework"]}
    parts = [
        _header(report),
        "<main>\n",
        _picture(report),
        section("look-at", "Look at", _warnings(report)),
        section("machine", catalogue.GROUPS["machine"], _machine(groups["machine"], page)),
        section(
            "accelerators", catalogue.GROUPS["accelerator"], _accelerators(groups["accelerator"])
        ),
        section("libraries", "Libraries and packages", _libraries(libraries)),
        section("not-here", "Not here", _names(verdict.missing(report))),
        section("untold", "Could not tell", _untold(report)),
        section("details", "Details", _details(report, page)),
        "</main>\n",
        _footer(report, page),
    ]
    return document(_title(report), "".join(parts), STYLE, SCRIPT)


def _title(report: Report) -> str:
    probe = report.probes.get("host")
    name = probe.facts.get("host_name", "") if probe and not report.redacted else ""
    return f"What is in {name}" if isinstance(name, str) and name else "What is in this machine"


def _header(report: Report) -> str:
    lines = [words("h1", _title(report))]
    probe = report.probes.get("host")
    said = [catalogue.glance("host", probe) if probe else "", f"as of {report.created}"]
    lines.append(words("p", " · ".join(part for part in said if part), "sub"))
    return element("header", *lines) + "\n"


def _picture(report: Report) -> str:
    """Return the picture twice: for a page that is wide, and for one that is not."""
    wide = picture(report, _WIDE, "picture-wide")
    narrow = picture(report, _NARROW, "picture-narrow")
    return element("figure", wide, "\n", narrow) + "\n" if wide else ""


def _warnings(report: Report) -> str:
    items = [
        element("li", _link(name), ": ", reason(one)) for name, one in verdict.warnings(report)
    ]
    return element("ul", *items, kind="warnings") if items else ""


def _link(name: str) -> str:
    return element("a", escaped(name), href=f"#probe-{name}")


def _machine(probes: dict[str, ProbeReport], page: Page) -> str:
    del page
    body = []
    for name, probe in probes.items():
        said = verdict.why(probe) if probe.failure else catalogue.glance(name, probe)
        if said:
            body.append([element("th", _link(name), scope="row"), words("td", said, "said")])
    return plain_table((), body, "stack") if body else ""


def _accelerators(probes: dict[str, ProbeReport]) -> str:
    body = []
    for name, probe in verdict.by_rung(probes).items():
        lines = [
            verdict.device_line(count, device) for count, device in verdict.alike(probe.devices)
        ]
        said = catalogue.glance(name, probe)
        if said and not lines:
            lines.append(said)
        if problem := verdict.why(probe):
            lines.append(problem)
        body.append(_row(name, probe, "".join(words("div", line) for line in lines)))
    return _verdicts(body) if body else words("p", "none found", "dim") if probes else ""


def _libraries(probes: dict[str, ProbeReport]) -> str:
    body = []
    for name, probe in verdict.by_rung(probes).items():
        said = catalogue.glance(name, probe) or verdict.where(probe)
        count = len(probe.libraries)
        more = words("span", f" · {count} files", "dim") if count > 1 else ""
        problem = verdict.why(probe)
        body.append(
            _row(name, probe, escaped(said) + more + (words("div", problem) if problem else ""))
        )
    return _verdicts(body) if body else ""


def _row(name: str, probe: ProbeReport, said: str) -> list[str]:
    return [
        element("td", badge(verdict.state_of(probe))),
        element("th", _link(name), scope="row"),
        words("td", probe.version, "version"),
        element("td", said, kind="said"),
    ]


def _verdicts(body: list[list[str]]) -> str:
    return plain_table(("presence", "name", "version", "where, or why not"), body, "stack four")


def _names(names: list[str]) -> str:
    return element("p", ", ".join(_link(name) for name in names)) if names else ""


def _untold(report: Report) -> str:
    items = [
        element("li", _link(name), ": ", escaped(why))
        for name, why in verdict.untold(report).items()
    ]
    return element("ul", *items) if items else ""


def _details(report: Report, page: Page) -> str:
    # Without the script the box would do nothing, so that only the script shows it.
    box = '<input type="search" hidden="" placeholder="Filter" aria-label="Filter the details">'
    parts = [
        details(name, probe, is_open=page.details, timing=page.timing)
        for name, probe in sorted(
            report.probes.items(), key=lambda item: not verdict.is_here(item[1])
        )
    ]
    return f"{box}\n{''.join(parts)}" if parts else ""


def _footer(report: Report, page: Page) -> str:
    told = verdict.provenance(report)
    if page.timing:
        told["took"] = f"{report.duration_seconds:.2f} s"
    rows = [words("dt", name) + words("dd", value) for name, value in told.items() if value]
    marks = [
        element("span", badge(state), " ", escaped(meaning))
        for state, meaning in verdict.MEANINGS.items()
    ]
    return (
        element("footer", element("p", "  ".join(marks), kind="dim"), element("dl", *rows)) + "\n"
    )
