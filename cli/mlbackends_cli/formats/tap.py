"""TAP 14: a test point a check. A warning, a note and what is accepted are TODO: failed, and not counted."""

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli.output import json_line
from mlbackends_cli.report import checks
from mlbackends_cli.terminal import Page


def outcome(outcome: Outcome, _page: Page) -> str:
    """Return the document."""
    lines = ["TAP version 14", f"# {_escaped(checks.heading(outcome))}"]
    if outcome.checks:
        lines.append(f"1..{len(outcome.checks)}")
    else:
        lines.append("1..0 # SKIP there is nothing to check")
    for number, check in enumerate(outcome.checks, 1):
        is_ok = check.status not in (Status.FAILED, Status.WAIVED)
        name = _escaped(f"{checks.code(check)}: {checks.line(check.title)}")
        lines.append(f"{'ok' if is_ok else 'not ok'} {number} - {name}{_directive(check)}")
        if check.status is not Status.PASSED:
            lines += _diagnostics(check)
    return "\n".join([*lines, ""])


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
        ("code", checks.code(check)),
        ("title", checks.line(check.title)),
        ("status", str(check.status)),
        ("severity", str(check.severity)),
        ("message", checks.sentence(check)),
        *checks.advice(check),
        ("at", checks.place(check)),
        ("documentation", checks.line(check.documentation)),
    ]
    lines = [f"{name}: {json_line(value)}" for name, value in rows if value]
    if evidence := dict(checks.evidence(check)):
        lines.append("evidence:")
        # YAML reads no key of more than 1,024 characters.
        lines += [f"  {json_line(name[:200])}: {json_line(evidence[name])}" for name in evidence]
    return [f"  {line}" for line in ("---", *lines, "...")]


def _escaped(text: str) -> str:
    """Return text that opens no directive.

    TAP 14 has an escaped "#", which opens one all the same for readers of 13, which are most. So
    another sign stands for it; the diagnostics have the text as it is.
    """
    return text.replace("\\", "\\\\").replace("#", "\uff03")
