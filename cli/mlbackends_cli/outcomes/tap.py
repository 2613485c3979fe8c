"""TAP 14: a test point a check. A warning, a note and what is accepted are TODO: failed, and not counted."""

import msgspec

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import checks
from mlbackends_cli.terminal import Page


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the document."""
    del page
    lines = ["TAP version 14", f"# {_escaped(checks.heading(outcome))}"]
    if not outcome.checks:
        return "\n".join([*lines, "1..0 # SKIP there is nothing to check", ""])
    lines.append(f"1..{len(outcome.checks)}")
    for number, check in enumerate(outcome.checks, 1):
        lines += _point(number, check)
    return "\n".join([*lines, ""])


def _point(number: int, check: Check) -> list[str]:
    is_ok = check.status not in (Status.FAILED, Status.WAIVED)
    name = _escaped(f"{checks.line(check.code)}: {checks.line(check.title)}")
    point = f"{'ok' if is_ok else 'not ok'} {number} - {name}{_directive(check)}"
    return [point] if check.status is Status.PASSED else [point, *_diagnostics(check)]


def _directive(check: Check) -> str:
    if check.status in (Status.SKIPPED, Status.UNKNOWN):
        return f" # SKIP {_escaped(checks.reason(check))}"
    if check.status is Status.WAIVED:
        return f" # TODO {_escaped(checks.reason(check))}"
    if check.status is Status.FAILED and check.severity is not Severity.ERROR:
        return f" # TODO {check.severity}: {_escaped(checks.sentence(check))}"
    return ""


def _diagnostics(check: Check) -> list[str]:
    """Return a YAML document whose scalars are JSON texts: no text can be anything else."""
    rows = [
        ("code", checks.line(check.code)),
        ("title", checks.line(check.title)),
        ("status", str(check.status)),
        ("severity", str(check.severity)),
        ("message", checks.sentence(check)),
        *checks.advice(check),
        ("at", checks.place(check)),
        ("documentation", checks.line(check.documentation)),
    ]
    lines = [f"{name}: {_quoted(value)}" for name, value in rows if value]
    if seen := checks.evidence(check):
        lines.append("evidence:")
        # YAML reads no key of more than 1,024 characters.
        lines += [
            f"  {_quoted(name[:200])}: {_quoted(value)}" for name, value in dict(seen).items()
        ]
    return [f"  {line}" for line in ("---", *lines, "...")]


def _escaped(text: str) -> str:
    """Return text that opens no directive.

    TAP 14 would take an escaped "#"; to readers of 13, which are most, it opens one all the same. So
    another sign stands for it; the diagnostics have the text as it is.
    """
    return text.replace("\\", "\\\\").replace("#", "\uff03")


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
