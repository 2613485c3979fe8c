"""Markdown, as GitHub reads it: for an issue, or the summary of a CI job."""

from collections.abc import Iterable, Mapping

from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Check, Outcome, Severity
from mlbackends.model.records import ProbeReport, Report
from mlbackends_cli.report import checks, probes
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.markdown import code, fenced, literal, table
from mlbackends_cli.text.plain import Listing, amount

_MOST_ROWS = 200
_SEVERITIES = {Severity.ERROR: "❌", Severity.WARNING: "⚠️", Severity.NOTE: "ℹ️"}  # noqa: RUF001
_STEPS = (1000, 300, 100, 30, 10, 3, 1, 0)


def listing(listing: Listing, _page: Page) -> str:
    """Return one table; each row has the full name of its subject."""
    rows = [
        tuple(literal(cell) for cell in (f"{group.path}{row[0]}", *row[1:]))
        for group in listing.groups
        for row in group.rows
    ]
    parts = [table(listing.columns, rows), *map(literal, listing.notes)]
    return "\n\n".join(filter(None, parts)) + "\n"


def report(report: Report, page: Page) -> str:
    """Return the overview; if the page asks for details, every probe in full."""
    if page.details:
        parts = [_probe(name, probe, page) for name, probe in report.probes.items()]
    else:
        parts = _overview(report)
    origin = probes.provenance(report)
    names = [name for name in ("tool", "schema", "created", "depth") if origin[name]]
    ends = [f"{name} {literal(origin[name])}" for name in names]
    ends += [f"took {report.duration_seconds:.2f} s"] if page.timing else []
    ends += ["redacted"] if report.redacted else []
    return "\n\n".join(part for part in [*parts, " · ".join(ends)] if part) + "\n"


def _overview(report: Report) -> list[str]:
    rows = probes.overview(report)
    accelerators = []
    for row in rows["accelerator"]:
        first, *rest = [*row.lines, *filter(None, [row.problem])] or [""]
        accelerators.append((_state(row.probe), *map(literal, (row.name, row.probe.version, first))))
        accelerators += [("", "", "", literal(line)) for line in rest]
    heads = ("presence", "name", "version", "description, or why it is not usable")
    sections = {
        "Machine": table(
            ("part", "what it is"),
            [(literal(row.name), literal(row.lines[0])) for row in rows["machine"]],
        ),
        "Accelerators": table(heads, accelerators) or "none found",
        "Libraries": _libraries(rows["library"]),
        "Uses": _records(uses) if (uses := probes.uses(report.probes.get("uses"))) else "",
        "Packages": _libraries(rows["framework"]),
        "Not here": ", ".join(literal(name) for name in probes.missing(report)),
        "Could not be determined": "\n".join(
            f"- **{literal(name)}**: {literal(why)}" for name, why in probes.without_row(report).items()
        ),
        "Problems": "\n".join(
            f"- **{literal(name)}**: {_reason(warning)}" for name, warning in probes.warnings(report)
        ),
    }
    parts = [_section(title, content) for title, content in sections.items()]
    return ["## What is in this machine", *parts]


def _section(title: str, content: str) -> str:
    return f"### {title}\n\n{content}" if content else ""


def _libraries(rows: Iterable[probes.Row]) -> str:
    body = []
    for name, probe, lines, problem in rows:
        files = [f"{len(probe.libraries)} files"] if len(probe.libraries) > 1 else []
        cells = (name, probe.version, " · ".join([*lines, *files]), problem)
        body.append((_state(probe), *map(literal, cells)))
    return table(("presence", "name", "version", "where", "why not usable"), body)


def _state(probe: ProbeReport) -> str:
    state = probes.state_of(probe)
    return f"{probes.MARKS[state]} {'could not be determined' if state == 'unknown' else state}"


def _reason(reason: Reason) -> str:
    hint = f" → {literal(reason.hint)}" if reason.hint else ""
    return f"{literal(reason.message)} ({code(reason.code, in_table=False)}){hint}"


def _probe(name: str, probe: ProbeReport, page: Page) -> str:
    version = f" {probe.version}" if probe.version else ""
    duration = f" · {probe.duration_seconds * 1000:.1f} ms" if page.timing else ""
    meaning = probes.meaning(name)
    about = f" · {literal(f'{probes.label(name)}: {meaning}')}" if meaning else ""
    facts, tables = probes.shown_facts(name, probe)
    parts = [
        f"## {literal(name + version)}",
        f"{_state(probe)}{duration}{about}",
        f"could not be determined: {literal(probe.failure.message)}" if probe.failure else "",
        _reasons(probes.own_reasons(probe, probe.libraries)),
        _section("Problems", _reasons(probe.warnings)),
        _section("Facts", _values(facts)),
        *(_section(literal(fact) or "Uses", _records(rows)) for fact, rows in tables.items()),
    ]
    for device in probe.devices:
        title = f"{device.kind} {device.index}: {device.name}".removesuffix(": ")
        values, _ = probes.split(probes.values_of(device))
        parts.append(f"### {probes.MARKS[probes.state_of(device)]} {literal(title)}")
        parts += [_values(values), _reasons(device.reasons)]
    for library in probe.libraries:
        title = f"{probes.MARKS[probes.state_of(library)]} {code(library.path, in_table=False)}"
        values = {"presence": str(library.presence), **probes.values_of(library)}
        parts += [_section(title, _values(values)), _reasons(library.reasons)]
    return "\n\n".join(part for part in parts if part)


def _reasons(reasons: Iterable[Reason]) -> str:
    return "\n".join(f"- {_reason(reason)}" for reason in reasons)


def _values(values: Mapping[str, object]) -> str:
    rows = [(code(name), code(amount(name, value))) for name, value in values.items()]
    return table(("name", "value"), rows)


def _records(rows: probes.Table) -> str:
    names = probes.columns(rows)[:40]
    body = [
        [code(amount(name, row[name])) if name in row else "" for name in names] for row in rows[:_MOST_ROWS]
    ]
    more = _more(len(rows) - _MOST_ROWS, "")
    return "\n\n".join(filter(None, (table(list(map(literal, names)), body), more)))


def outcome(outcome: Outcome, page: Page) -> str:
    """Return a table, then what to do for each code; with details also what passed or does not apply."""
    return _outcome(outcome, len(outcome.checks), details=page.details)


def within(outcome: Outcome, most_bytes: int) -> str:
    """Return as much as fits, the worst first, and the number of the rest; "" if nothing fits."""
    for most in (len(outcome.checks), *_STEPS):
        text = _outcome(outcome, most, details=False)
        if len(text.encode()) <= most_bytes:
            return text
    return ""


def _outcome(outcome: Outcome, most: int, *, details: bool) -> str:
    failed = outcome.failed()
    shown = failed[:most]
    rows = []
    for check in shown:
        declared = f" ({literal(checks.place(check))})" if check.place else ""
        severity = f"{_SEVERITIES[check.severity]} {check.severity}"
        message = f"{literal(check.message or check.title)}{declared}"
        rows.append((severity, code(check.code), message, literal(checks.action(check))))
    counts = ", ".join(f"{count} {word}" for count, word in checks.counts(outcome)) or "nothing"
    parts = [
        f"## {literal(checks.heading(outcome))}",
        f"**{counts}**",
        table(("", "code", "what was seen", "what to do"), rows),
        _more(len(failed) - len(shown), " findings"),
        *_advice(shown),
    ]
    for title, _, listed in checks.not_failed(outcome, details=details):
        lines = [
            f"- {code(check.code, in_table=False)}: {literal(checks.cause(check))}" for check in listed[:most]
        ]
        if more := _more(len(listed) - most, f" {title.lower()}"):
            lines.append(f"- {more}")
        parts.append(_section(title, "\n".join(lines)))
    created = f"as of {outcome.created}" if outcome.created else ""
    ends = [literal(text) for text in (outcome.tool, created) if text]
    return "\n\n".join(part for part in [*parts, " · ".join(ends)] if part) + "\n"


def _advice(failed: tuple[Check, ...]) -> list[str]:
    """Return a part for each code that has more than its row of the table."""
    parts: list[str] = []
    by_code: dict[str, list[Check]] = {}
    for check in failed:
        by_code.setdefault(check.code, []).append(check)
    for name, group in by_code.items():
        advice = [literal(why) for why in dict.fromkeys(check.why for check in group) if why]
        commands = dict.fromkeys(check.command for check in group)
        advice += [fenced(command, "sh") for command in commands if command]
        rows = (row for check in group for row in checks.evidence(check, units=True))
        evidence = dict.fromkeys((code(fact), code(value)) for fact, value in rows)
        advice += [table(("seen", "value"), evidence)] if evidence else []
        if advice:
            parts += [f"### {code(name, in_table=False)}: {literal(group[0].title)}", *advice]
    return parts


def _more(count: int, noun: str) -> str:
    return f"and {count} more{noun}; `--format json` has all" if count > 0 else ""
