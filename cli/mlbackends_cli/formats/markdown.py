"""Markdown, as GitHub reads it: for an issue, or the summary of a CI job."""

from collections.abc import Iterable, Mapping

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.reasons import Reason
from mlbackends.model.records import ProbeReport, Report
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import checks, probes
from mlbackends_cli.text.listing import Listing
from mlbackends_cli.text.markdown import code, fenced, literal, table
from mlbackends_cli.text.plain import amount

_MOST_ROWS = 200
_SEVERITIES = {Severity.ERROR: "❌", Severity.WARNING: "⚠️", Severity.NOTE: "ℹ️"}  # noqa: RUF001
_STEPS = (1000, 300, 100, 30, 10, 3, 1, 0)


def listing(listing: Listing, page: Page) -> str:
    """Return one table; each row has the whole name of what it is of."""
    del page
    rows = [
        tuple(literal(cell) for cell in (f"{group.path}{row[0]}", *row[1:]))
        for group in listing.groups
        for row in group.rows
    ]
    return "\n\n".join([table(listing.columns, rows), *map(literal, listing.notes)]) + "\n"


# ---- a report ------------------------------------------------------------------------------


def report(report: Report, page: Page) -> str:
    """Return the overview; where the page asks for details, every probe in full."""
    if page.details:
        parts = [_probe(name, probe, page) for name, probe in report.probes.items()]
    else:
        parts = _overview(report)
    origin = probes.provenance(report)
    ends = [f"{name} {literal(origin[name])}" for name in ("tool", "schema", "created", "depth")]
    ends = [end for end in ends if not end.endswith(" ")]
    ends += [f"took {report.duration_seconds:.2f} s"] if page.timing else []
    ends += ["redacted"] if report.redacted else []
    return "\n\n".join(part for part in [*parts, " · ".join(ends)] if part) + "\n"


def _overview(report: Report) -> list[str]:
    groups = probes.grouped(report)
    machine = []
    for name, probe in groups["machine"].items():
        line = probes.why(probe) if probe.failure else probes.glance(name, probe)
        if line:
            machine.append((literal(name), literal(line)))
    accelerators = []
    for name, probe in probes.best_first(groups["accelerator"]).items():
        lines = probes.device_lines(probe)
        lines += [
            each
            for each in ("" if lines else probes.glance(name, probe), probes.why(probe))
            if each
        ]
        first, *rest = lines or [""]
        accelerators.append((_state(probe), literal(name), literal(probe.version), literal(first)))
        accelerators += [("", "", "", literal(line)) for line in rest]
    heads = ("presence", "name", "version", "what it is, or why it is not usable")
    undetermined = probes.undetermined(report).items()
    sections = {
        "Machine": table(("part", "what it is"), machine),
        "Accelerators": table(heads, accelerators) or "none found",
        "Libraries": _libraries(groups["library"]),
        "Packages": _libraries(groups["framework"]),
        "Not here": ", ".join(literal(name) for name in probes.missing(report)),
        "Could not tell": "\n".join(
            f"- **{literal(n)}**: {literal(why)}" for n, why in undetermined
        ),
        "Look at": "\n".join(
            f"- **{literal(name)}**: {_reason(one)}" for name, one in probes.warnings(report)
        ),
    }
    parts = [_section(title, content) for title, content in sections.items()]
    return ["## What is in this machine", *parts]


def _section(title: str, content: str) -> str:
    return f"### {title}\n\n{content}" if content else ""


def _libraries(group: dict[str, ProbeReport]) -> str:
    rows = []
    for name, probe in probes.best_first(group).items():
        place = [probes.glance(name, probe) or probes.where(probe)]
        place += [f"{len(probe.libraries)} files"] if len(probe.libraries) > 1 else []
        cells = (name, probe.version, " · ".join(filter(None, place)), probes.why(probe))
        rows.append((_state(probe), *map(literal, cells)))
    return table(("presence", "name", "version", "where", "why not usable"), rows)


def _state(probe: ProbeReport) -> str:
    state = probes.state_of(probe)
    return f"{probes.MARKS[state]} {'could not tell' if state == 'unknown' else state}"


def _reason(reason: Reason) -> str:
    hint = f" → {literal(reason.hint)}" if reason.hint else ""
    return f"{literal(reason.message)} ({code(reason.code, in_table=False)}){hint}"


def _probe(name: str, probe: ProbeReport, page: Page) -> str:
    version = f" {probe.version}" if probe.version else ""
    took = f" · {probe.duration_seconds * 1000:.1f} ms" if page.timing else ""
    meaning = probes.meaning(name)
    about = f" · {literal(f'{probes.label(name)}: {meaning}')}" if meaning else ""
    facts = {key: value for key, value in probe.facts.items() if not probes.is_table(value)}
    parts = [
        f"## {literal(name + version)}",
        f"{_state(probe)}{took}{about}",
        f"could not tell: {literal(probe.failure.message)}" if probe.failure else "",
        _reasons(probes.own_reasons(probe)) if not probe.libraries else "",
        _section("Look at", _reasons(probe.warnings)),
        _section("Facts", _values(facts)),
    ]
    for fact, value in probe.facts.items():
        if probes.is_table(value) and isinstance(value, list):
            parts.append(_section(literal(fact), _records(value)))
    for device in probe.devices:
        title = f"{device.kind} {device.index}: {device.name}".removesuffix(": ")
        rows = {k: v for k, v in probes.device_rows(device).items() if not probes.is_table(v)}
        parts.append(f"### {probes.MARKS[probes.state_of(device)]} {literal(title)}")
        parts += [_values(rows), _reasons(device.reasons)]
    for library in probe.libraries:
        mark = probes.MARKS[probes.state_of(library)]
        rows = {"presence": str(library.presence), **probes.library_rows(library)}
        parts.append(_section(f"{mark} {code(library.path, in_table=False)}", _values(rows)))
        parts.append(_reasons(library.reasons))
    return "\n\n".join(part for part in parts if part)


def _reasons(reasons: Iterable[Reason]) -> str:
    return "\n".join(f"- {_reason(reason)}" for reason in reasons)


def _values(values: Mapping[str, object]) -> str:
    rows = [(code(name), code(amount(name, value))) for name, value in values.items()]
    return table(("name", "value"), rows)


def _records(rows: list[dict[str, object]]) -> str:
    names = probes.columns(rows)[:40]
    body = [
        [code(amount(name, row[name])) if name in row else "" for name in names]
        for row in rows[:_MOST_ROWS]
    ]
    more = len(rows) - _MOST_ROWS
    rest = f"\n\nand {more} more; `--format json` has all" if more > 0 else ""
    return table([literal(name) for name in names], body) + rest


# ---- an outcome ----------------------------------------------------------------------------


def outcome(outcome: Outcome, page: Page) -> str:
    """Return a table, then what to do for each code; with details also what passed or does not apply."""
    return _outcome(outcome, len(outcome.checks), details=page.details)


def within(outcome: Outcome, most_bytes: int) -> str:
    """Return as much as fits, the worst first, and how much more there is; "" where nothing fits."""
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
        seen = f"{literal(check.message or check.title)}{declared}"
        rows.append((severity, code(check.code), seen, literal(check.hint)))
    counts = ", ".join(f"{count} {word}" for count, word in checks.counts(outcome)) or "nothing"
    parts = [
        f"## {literal(checks.heading(outcome))}",
        f"**{counts}**",
        table(("", "code", "what was seen", "what to do"), rows),
        _more(len(failed) - len(shown), "findings"),
        *_advice(shown),
    ]
    titles = {"Accepted until a day": Status.WAIVED, "Not checked": Status.UNKNOWN}
    if details:
        titles |= {"Does not apply": Status.SKIPPED, "Passed": Status.PASSED}
    for title, status in titles.items():
        found = outcome.with_status(status)
        lines = [
            f"- {code(check.code, in_table=False)}: {literal(checks.cause(check))}"
            for check in found[:most]
        ]
        more = _more(len(found) - most, title.lower())
        parts.append(_section(title, "\n".join([*lines, *([f"- {more}"] if more else [])])))
    ends = [literal(each) for each in (outcome.tool, f"as of {outcome.created}") if each]
    return "\n\n".join(part for part in [*parts, " · ".join(ends)] if part) + "\n"


def _advice(failed: tuple[Check, ...]) -> list[str]:
    """Return a part for each code that has more than its row of the table."""
    parts: list[str] = []
    by_code: dict[str, list[Check]] = {}
    for check in failed:
        by_code.setdefault(check.code, []).append(check)
    for name, group in by_code.items():
        advice = [literal(why) for why in dict.fromkeys(each.why for each in group) if why]
        commands = dict.fromkeys(each.command for each in group)
        advice += [fenced(command, "sh") for command in commands if command]
        rows = (row for each in group for row in checks.evidence(each, units=True))
        seen = dict.fromkeys((code(fact), code(value)) for fact, value in rows)
        advice += [table(("seen", "value"), seen)] if seen else []
        if advice:
            parts += [f"### {code(name, in_table=False)}: {literal(group[0].title)}", *advice]
    return parts


def _more(count: int, what: str) -> str:
    return f"and {count} more {what}; `--format json` has all" if count > 0 else ""
