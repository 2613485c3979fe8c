"""Markdown for an issue or the summary of a CI job: a table, then what to do for each code."""

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import catalogue, checks
from mlbackends_cli.markdown import code, fenced, literal, table
from mlbackends_cli.terminal import Page

_MARKS = {Severity.ERROR: "❌", Severity.WARNING: "⚠️", Severity.NOTE: "ℹ️"}  # noqa: RUF001
_STEPS = (1000, 300, 100, 30, 10, 3, 1, 0)


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the document; with details also what passed and what does not apply."""
    return _document(outcome, len(outcome.checks), details=page.details)


def within(outcome: Outcome, most_bytes: int) -> str:
    """Return as much as fits, the worst first, and how much more there is; "" where nothing fits."""
    for most in (len(outcome.checks), *_STEPS):
        text = _document(outcome, most, details=False)
        if len(text.encode()) <= most_bytes:
            return text
    return ""


def _document(outcome: Outcome, most: int, *, details: bool) -> str:
    failed, unknown = outcome.failed(), outcome.with_status(Status.UNKNOWN)
    shown = failed[:most]
    parts = [
        f"## {literal(checks.heading(outcome))}",
        "**"
        + (", ".join(f"{count} {word}" for count, word in checks.counts(outcome)) or "nothing")
        + "**",
        table(("", "code", "what was seen", "what to do"), map(_row, shown)),
        _more(len(failed) - len(shown), "findings"),
        *_advice(shown),
        _list("Accepted until a day", outcome.with_status(Status.WAIVED), most),
        _list("Not checked", unknown, most),
    ]
    if details:
        parts.append(_list("Does not apply", outcome.with_status(Status.SKIPPED), most))
        parts.append(_list("Passed", outcome.with_status(Status.PASSED), most))
    ends = [literal(each) for each in (outcome.tool, f"as of {outcome.created}") if each]
    return "\n\n".join(part for part in [*parts, " · ".join(ends)] if part) + "\n"


def _row(check: Check) -> tuple[str, ...]:
    declared = f" ({literal(checks.place(check))})" if check.place else ""
    return (
        f"{_MARKS[check.severity]} {check.severity}",
        code(check.code),
        f"{literal(check.message or check.title)}{declared}",
        literal(check.hint),
    )


def _advice(failed: tuple[Check, ...]) -> list[str]:
    """Return a part for each code that has more to tell than the table."""
    parts: list[str] = []
    by_code: dict[str, list[Check]] = {}
    for check in failed:
        by_code.setdefault(check.code, []).append(check)
    for name, alike in by_code.items():
        told = [literal(why) for why in dict.fromkeys(check.why for check in alike) if why]
        told += [
            fenced(command, "sh")
            for command in dict.fromkeys(check.command for check in alike)
            if command
        ]
        seen = {row: None for check in alike for row in _evidence(check)}
        told += [table(("seen", "value"), seen)] if seen else []
        if told:
            parts += [f"### {code(name, in_table=False)}: {literal(alike[0].title)}", *told]
    return parts


def _evidence(check: Check) -> list[tuple[str, str]]:
    values = check.evidence
    return [
        (code(name), code(catalogue.amount(name, values[name]) if name in values else value))
        for name, value in checks.evidence(check)
    ]


def _list(title: str, found: tuple[Check, ...], most: int) -> str:
    if not found:
        return ""
    rows = [
        f"- {code(check.code, in_table=False)}: {literal(checks.cause(check))}"
        for check in found[:most]
    ]
    rows += [f"- {more}"] if (more := _more(len(found) - most, title.lower())) else []
    return f"### {title}\n\n" + "\n".join(rows)


def _more(count: int, what: str) -> str:
    return f"and {count} more {what}; `--format json` has all" if count > 0 else ""
