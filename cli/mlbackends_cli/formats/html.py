"""HTML: one page that needs nothing but itself: a machine, or an outcome."""

from mlbackends.base.reasons import Reason
from mlbackends.host.declared import facts_of
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.records import Device, Library, ProbeReport, Report
from mlbackends_cli.report import checks, probes
from mlbackends_cli.report.machine_chart import picture
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.elements import (
    document,
    element,
    escaped,
    finding,
    folded,
    footer,
    header,
    items,
    row,
    scrolled,
    section,
    table,
    words,
)
from mlbackends_cli.text.plain import amount

#: Maximum number of rows, devices and copies of a library that are shown.
_MOST = 200
# The box needs the script, which therefore shows it.
_BOX = '<input type="search" hidden="" placeholder="Filter" aria-label="Filter the details">\n'


def report(report: Report, page: Page) -> str:
    """Return the page; the details are unfolded if the page asks for them."""
    host = report.probes.get("host")
    name = host.facts.get("host_name", "") if host and not report.redacted else ""
    title = f"What is in {name}" if isinstance(name, str) and name else "What is in this machine"
    about = (probes.glance("host", host) if host else "", f"as of {report.created}")
    rows = probes.overview(report, explained=True)
    machine = [
        [
            element("th", _link(row.name), scope="row"),
            element("td", *(words("div", line) for line in row.lines), kind="text"),
        ]
        for row in rows["machine"]
    ]
    accelerators = {
        row.name: "".join(words("div", line) for line in (*row.lines, row.problem) if line)
        for row in rows["accelerator"]
    }
    has_accelerators = any(probes.group(name) == "accelerator" for name in report.probes)
    nothing = words("p", "none found", "dim") if has_accelerators else ""
    used = probes.used_libraries(report.probes.get("uses"))
    packages = {
        row.name: _copies(row) + "".join(words("div", text, "dim") for text in used.get(row.name, [])[1:])
        for row in sorted(rows["framework"], key=probes.torch_first)
    }
    libraries = {row.name: _copies(row) for row in rows["library"]}
    problems = [
        f"{words('span', word, f'severity {kind}')}{_link(name)}: {_reason(reason)}"
        for word, kind, reasons in (
            ("broken", "high", probes.broken(report)),
            ("warning", "medium", probes.warnings(report)),
        )
        for name, reason in reasons
    ]
    uses = probes.uses(report.probes.get("uses"))
    missing = probes.missing(report)
    absent = folded(
        [words("strong", f"{len(missing)} more {'was' if len(missing) == 1 else 'were'} not found")],
        element("p", ", ".join(map(_link, missing))),
        anchor="not-here",
    )
    undetermined = probes.without_row(report).items()
    present_first = sorted(report.probes.items(), key=lambda item: not probes.is_present(item[1]))
    details = "".join(_probe(name, probe, page) for name, probe in present_first)
    values = probes.provenance(report)
    if page.timing:
        values["took"] = f"{report.duration_seconds:.2f} s"
    marks = [element("span", _badge(state), " ", escaped(text)) for state, text in probes.MEANINGS.items()]
    body = [
        header(title, about),
        "<main>\n",
        picture(report),
        section("problems", "Problems", items("warnings", *problems)),
        section("machine", "Machine", table((), machine, "stack")),
        section("accelerators", "Accelerators", _states(report, accelerators) or nothing),
        section("packages", "Packages", _states(report, packages)),
        section("libraries", "Libraries", _states(report, libraries)),
        section("uses", "Libraries that packages use", _records("", uses) if uses else ""),
        section(
            "untold",
            "Could not be determined",
            items("", *(f"{_link(name)}: {escaped(why)}" for name, why in undetermined)),
        ),
        absent if missing else "",
        section("details", "Details", _BOX + details if details else ""),
        "</main>\n",
        footer(values, element("p", "  ".join(marks), kind="dim")),
    ]
    return document(title, "".join(body), ("page", "findings", "../charts/machine"), "filter")


def _copies(row: probes.Row) -> str:
    """Return the description of a library or package, its number of copies, and its problem."""
    count = len(row.probe.libraries)
    more = words("span", f" · {count} files", "dim") if count > 1 else ""
    return escaped("".join(row.lines)) + more + (words("div", row.problem) if row.problem else "")


def _link(name: str) -> str:
    return element("a", escaped(name), href=f"#probe-{name}")


def _badge(state: str) -> str:
    """Return the state with its mark, which screen readers skip."""
    mark = element("span", escaped(probes.MARKS[state]), aria_hidden="true")
    name = "could not be determined" if state == "unknown" else state
    title = probes.MEANINGS[state]
    return element("span", mark, " ", escaped(name), kind=f"badge {state}", title=title)


def _reason(one: Reason) -> str:
    hint = words("div", one.hint, "hint") if one.hint else ""
    return f"{escaped(one.message)} {words('code', f'[{one.code}]', 'dim')}{hint}"


def _states(report: Report, found: dict[str, str]) -> str:
    """Return a table of probes, with the description of each as HTML."""
    body = [
        [
            element("td", _badge(probes.state_of(report.probes[name]))),
            element("th", _link(name), scope="row"),
            words("td", report.probes[name].version, "version"),
            element("td", text, kind="text"),
        ]
        for name, text in found.items()
    ]
    return table(("presence", "name", "version", "location, or the reason"), body, "stack four")


def _probe(name: str, probe: ProbeReport, page: Page) -> str:
    """Return a probe with its facts and what they mean, its devices, and every copy of a library."""
    meaning, state = probes.meaning(name), probes.state_of(probe)
    title = [
        # Of a machine's parts, "found" would sound as if something were missing.
        _badge(state) if state != "found" or probes.group(name) != "machine" else "",
        words("strong", name),
        words("span", probe.version) if probe.version else "",
        words("span", f"{probes.label(name)}: {meaning}" if meaning else "", "dim"),
        words("span", f"{probe.duration_seconds * 1000:.1f} ms", "dim") if page.timing else "",
    ]
    devices, libraries = probe.devices, probe.libraries
    declared = facts_of(name)
    abouts = {declared[fact].label or fact: declared[fact].doc for fact in declared}
    facts, tables = probes.shown_facts(name, probe)
    body = [
        row(fact, words("td", amount(fact, value)), words("td", abouts.get(fact, ""), "about"))
        for fact, value in facts.items()
    ]
    inside = [
        words("p", f"could not be determined: {probe.failure.message}", "broken") if probe.failure else "",
        items("warnings", *map(_reason, probe.warnings)),
        items("reasons", *map(_reason, probes.own_reasons(probe, libraries))),
        table((), body, "facts"),
        *(
            _records(f"{fact}: {abouts[fact]}" if abouts.get(fact) else fact, rows)
            for fact, rows in tables.items()
        ),
        *(
            _copy(device, escaped(f"{device.kind} {device.index}: {device.name}".removesuffix(": ")))
            for device in devices[:_MOST]
        ),
        _more(len(devices), " devices"),
        *(_copy(library, words("code", library.path)) for library in libraries[:_MOST]),
        _more(len(libraries), " copies"),
        words("p", f"Source: {probe.source}", "dim") if probe.source else "",
    ]
    return folded(title, *inside, anchor=f"probe-{name}", is_open=page.details, data_filter="")


def _more(count: int, noun: str, kind: str = "") -> str:
    if count <= _MOST:
        return ""
    return words("p", f"and {count - _MOST} more{noun}; --format json has all", kind)


def _records(title: str, rows: probes.Table) -> str:
    """Return a fact that is a list of records as a separate table."""
    names = probes.columns(rows)[:40]
    body = [
        [words("td", amount(name, values[name]) if name in values else "") for name in names]
        for values in rows[:_MOST]
    ]
    rest = _more(len(rows), "", "dim")
    head = words("h3", title) if title else ""
    return head + scrolled(table(names, body) + rest, title or "Libraries that packages use")


def _copy(entry: Device | Library, title: str) -> str:
    """Return a device or a copy of a library. title: HTML."""
    values = probes.values_of(entry)
    if isinstance(entry, Device):
        values, _ = probes.split(values)
    head = element("h3", _badge(probes.state_of(entry)), " ", title)
    body = [row(key, words("td", amount(key, value))) for key, value in values.items()]
    reasons = items("reasons", *map(_reason, entry.reasons))
    return element("div", head, reasons, table((), body, "facts"), kind="copy")


def outcome(outcome: Outcome, page: Page) -> str:
    """Return what failed, the worst first, and the rest, unfolded if the page asks for details."""
    wrong = outcome.failed(Severity.WARNING)
    worth = outcome.failed()[len(wrong) :]
    fine = "Nothing is wrong"
    if open_questions := len(outcome.with_status(Status.UNKNOWN)):
        fine += f" in what could be checked; {open_questions} could not be"
    numbers = [(f"{count:,}", word) for count, word in checks.counts(outcome)]
    about = (outcome.subject, f"as of {outcome.created}" if outcome.created else "")
    body = [
        header(checks.line(outcome.title), about, numbers),
        "<main>\n",
        section("wrong", "What is wrong", _findings(wrong) or words("p", f"{fine}.", "fine")),
        section("worth-knowing", "Worth knowing", _findings(worth)),
    ]
    parts = []
    for title, status, listed in checks.not_failed(outcome, details=True):
        rows = (row(checks.code(check), words("td", checks.cause(check))) for check in listed)
        head = (words("strong", title), words("span", f"{len(listed):,}", "dim"))
        is_open = page.details or status is Status.WAIVED
        parts.append(folded(head, table((), rows, "facts"), is_open=is_open, id=str(status)))
    body += [section("others", "The other checks", *parts), "</main>\n"]
    body.append(footer({"made by": outcome.tool, "schema": outcome.schema}))
    return document(checks.heading(outcome), "".join(body), ("page", "findings"))


def _findings(failed: tuple[Check, ...]) -> str:
    found = []
    for check in failed:
        declared = checks.place(check)
        advice = []
        for word, text in checks.advice(check):
            content = element("pre", words("code", text)) if word == "type" else escaped(text)
            advice.append(words("dt", word) + element("dd", content))
        if check.documentation:  # shown, not linked: it comes from a file
            advice.append(words("dt", "see") + words("dd", checks.line(check.documentation)))
        rows = [row(name, words("td", value)) for name, value in checks.evidence(check, units=True)]
        shown = (words("summary", "what shows it"), table((), rows, "facts"))
        inside = (
            words("p", f"declared in {declared}", "dim") if declared else "",
            element("dl", *advice, kind="advice") if advice else "",
            element("details", *shown) if rows else "",
        )
        severity = str(check.severity)
        found.append(finding(severity, checks.sentence(check), checks.code(check), *inside))
    return element("ul", *found, kind="findings") if found else ""
