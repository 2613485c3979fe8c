"""Markdown, as GitHub reads it: to be pasted into an issue."""

from collections.abc import Iterable, Mapping

from mlbackends.model.reasons import Reason
from mlbackends.model.records import ProbeReport, Report
from mlbackends_cli import catalogue, verdict
from mlbackends_cli.listing import Listing
from mlbackends_cli.markdown import code, literal, table
from mlbackends_cli.terminal import Page

_MOST_ROWS = 200


def report(report: Report, page: Page) -> str:
    """Return the overview; where the page asks for details, every probe in full."""
    parts = _details(report, page) if page.details else _overview(report)
    told = verdict.provenance(report)
    ends = [f"{name} {literal(value)}" for name, value in told.items() if value and name in _ENDS]
    took = [f"took {report.duration_seconds:.2f} s"] if page.timing else []
    redacted = ["redacted"] if report.redacted else []
    return "\n\n".join(part for part in [*parts, " · ".join(ends + took + redacted)] if part) + "\n"


def listing(listing: Listing, page: Page) -> str:
    """Return one table; each row says in full what it is of."""
    del page
    rows = [
        tuple(literal(cell) for cell in (f"{group.path}{row[0]}", *row[1:]))
        for group in listing.groups
        for row in group.rows
    ]
    return "\n\n".join([table(listing.columns, rows), *map(literal, listing.notes)]) + "\n"


_ENDS = ("tool", "schema", "created", "depth")


# ---- the overview --------------------------------------------------------------------------


def _overview(report: Report) -> list[str]:
    groups = verdict.grouped(report)
    return [
        "## What is in this machine",
        _section("Machine", _machine(groups["machine"])),
        _section("Accelerators", _accelerators(verdict.by_rung(groups["accelerator"]))),
        _section("Libraries", _libraries(verdict.by_rung(groups["library"]))),
        _section("Packages", _libraries(verdict.by_rung(groups["framework"]))),
        _section("Not here", ", ".join(literal(name) for name in verdict.missing(report))),
        _section("Could not tell", _untold(report)),
        _section("Look at", _warnings(report)),
    ]


def _section(title: str, content: str) -> str:
    return f"### {title}\n\n{content}" if content else ""


def _machine(probes: Mapping[str, ProbeReport]) -> str:
    rows = []
    for name, probe in probes.items():
        said = verdict.why(probe) if probe.failure else catalogue.glance(name, probe)
        if said:
            rows.append((literal(name), literal(said)))
    return table(("part", "what it is"), rows)


def _accelerators(probes: Mapping[str, ProbeReport]) -> str:
    rows = []
    for name, probe in probes.items():
        lines = [verdict.device_line(count, each) for count, each in verdict.alike(probe.devices)]
        said = catalogue.glance(name, probe)
        lines += [each for each in ("" if lines else said, verdict.why(probe)) if each]
        first, *rest = lines or [""]
        rows.append((_rung(probe), literal(name), literal(probe.version), literal(first)))
        rows += [("", "", "", literal(line)) for line in rest]
    return (
        table(("presence", "name", "version", "what it is, or why it is not usable"), rows)
        or "none found"
    )


def _libraries(probes: Mapping[str, ProbeReport]) -> str:
    rows = []
    for name, probe in probes.items():
        said = catalogue.glance(name, probe) or verdict.where(probe)
        files = f"{len(probe.libraries)} files" if len(probe.libraries) > 1 else ""
        place = " · ".join(part for part in (said, files) if part)
        rows.append(
            (
                _rung(probe),
                literal(name),
                literal(probe.version),
                literal(place),
                literal(verdict.why(probe)),
            )
        )
    return table(("presence", "name", "version", "where", "why not usable"), rows)


def _rung(probe: ProbeReport) -> str:
    state = verdict.state_of(probe)
    return f"{verdict.MARKS[state]} {'could not tell' if state == 'unknown' else state}"


def _warnings(report: Report) -> str:
    return "\n".join(
        f"- **{literal(name)}**: {_reason(warning)}" for name, warning in verdict.warnings(report)
    )


def _untold(report: Report) -> str:
    told = verdict.untold(report).items()
    return "\n".join(f"- **{literal(name)}**: {literal(why)}" for name, why in told)


def _reason(reason: Reason) -> str:
    hint = f" → {literal(reason.hint)}" if reason.hint else ""
    return f"{literal(reason.message)} ({code(reason.code, in_table=False)}){hint}"


# ---- everything about the probes that were named -------------------------------------------


def _details(report: Report, page: Page) -> list[str]:
    return [_probe(name, probe, page) for name, probe in report.probes.items()]


def _probe(name: str, probe: ProbeReport, page: Page) -> str:
    version = f" {probe.version}" if probe.version else ""
    took = f" · {probe.duration_seconds * 1000:.1f} ms" if page.timing else ""
    meaning = catalogue.meaning(name)
    about = f"{catalogue.label(name)}: {meaning}" if meaning else ""
    parts = [
        f"## {literal(name + version)}",
        f"{_rung(probe)}{took}" + (f" · {literal(about)}" if about else ""),
        f"could not tell: {literal(probe.failure.message)}" if probe.failure else "",
        _list(verdict.own_reasons(probe)) if not probe.libraries else "",
        _section("Look at", _list(probe.warnings)),
    ]
    facts = {key: value for key, value in probe.facts.items() if not verdict.is_table(value)}
    parts.append(_section("Facts", _known(facts)))
    for fact, value in probe.facts.items():
        if verdict.is_table(value) and isinstance(value, list):
            parts.append(_section(literal(fact), _records(value)))
    for device in probe.devices:
        title = f"{device.kind} {device.index}: {device.name}".removesuffix(": ")
        state = verdict.state_of(device)
        rows = {k: v for k, v in verdict.device_rows(device).items() if not verdict.is_table(v)}
        parts += [f"### {verdict.MARKS[state]} {literal(title)}", _known(rows)]
        parts.append(_list(device.reasons))
    for library in probe.libraries:
        state = verdict.state_of(library)
        rows = {"presence": str(library.presence), **verdict.library_rows(library)}
        parts.append(
            _section(f"{verdict.MARKS[state]} {code(library.path, in_table=False)}", _known(rows))
        )
        parts.append(_list(library.reasons))
    return "\n\n".join(part for part in parts if part)


def _list(reasons: Iterable[Reason]) -> str:
    return "\n".join(f"- {_reason(reason)}" for reason in reasons)


def _known(rows: Mapping[str, object]) -> str:
    told = [(code(name), code(catalogue.amount(name, value))) for name, value in rows.items()]
    return table(("name", "value"), told)


def _records(rows: list[dict[str, object]]) -> str:
    names = verdict.columns(rows)[:40]
    body = [
        [code(catalogue.amount(name, row[name])) if name in row else "" for name in names]
        for row in rows[:_MOST_ROWS]
    ]
    more = len(rows) - _MOST_ROWS
    rest = f"\n\nand {more} more; `--format json` has all" if more > 0 else ""
    return table([literal(name) for name in names], body) + rest
