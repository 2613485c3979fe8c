"""GitLab code quality: what failed, as the list that a merge request compares with its target's.

What is accepted, does not apply or was not checked is not a finding there; JUnit has all of that.
"""

from mlbackends.model.audit import Outcome, Severity
from mlbackends_cli.output import indented
from mlbackends_cli.report import checks
from mlbackends_cli.terminal import Page

_SEVERITIES = {Severity.NOTE: "info", Severity.WARNING: "minor", Severity.ERROR: "critical"}


def outcome(outcome: Outcome, _page: Page) -> str:
    """Return the list, the worst first."""
    findings = []
    for check, number in checks.numbered(outcome.failed()):
        path, line = checks.location(outcome, check)
        sentences = [checks.sentence(check)]
        sentences += [f"{word.title()}: {text}" for word, text in checks.advice(check) if word != "why"]
        finding = {
            "type": "issue",
            "check_name": f"backends/{checks.code(check)}",
            "description": ". ".join(text.removesuffix(".") for text in sentences),
            "fingerprint": checks.fingerprint(check, number, outcome.kind, path),
            "severity": _SEVERITIES[check.severity],
            "location": {"path": path, "lines": {"begin": line}},
        }
        findings.append(finding)
    return indented(findings)
