"""GitLab code quality: what failed, as the list that a merge request compares with its target's.

What is accepted, does not apply or could not be told is no finding there; JUnit has all of that.
"""

from mlbackends.model.audit import Check, Outcome, Severity
from mlbackends_cli import checks
from mlbackends_cli.checkout import location
from mlbackends_cli.output import indented
from mlbackends_cli.terminal import Page

_SEVERITIES = {Severity.NOTE: "info", Severity.WARNING: "minor", Severity.ERROR: "critical"}


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the list, the worst first."""
    del page
    found = [_finding(outcome, *each) for each in checks.numbered(outcome.failed())]
    return indented(found)


def _finding(outcome: Outcome, check: Check, number: int) -> dict[str, object]:
    path, line = location(outcome, check)
    told = [checks.sentence(check)]
    told += [f"{word.title()}: {text}" for word, text in checks.advice(check) if word != "why"]
    return {
        "type": "issue",
        "check_name": f"backends/{checks.line(check.code)}",
        "description": ". ".join(text.removesuffix(".") for text in told),
        # Of what it is, not of what it says: a changed number is no new finding.
        "fingerprint": checks.fingerprint(outcome.kind, path, *checks.identity(check, number)),
        "severity": _SEVERITIES[check.severity],
        "location": {"path": path, "lines": {"begin": line}},
    }
