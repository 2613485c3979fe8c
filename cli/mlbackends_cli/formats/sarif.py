"""SARIF 2.1.0 as code scanning reads it: a rule a code, a result for each time that it failed.

What passed or does not apply is a rule without a result: code scanning would show either as an alert.
What was not checked is a notification of the run.
"""

import re
from typing import Any
from urllib.parse import quote

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli.output import indented
from mlbackends_cli.report import checks
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import markdown
from mlbackends_cli.text.plain import shortened

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_PROBLEMS = {Severity.NOTE: "recommendation", Severity.WARNING: "warning", Severity.ERROR: "error"}
#: Code scanning takes 255 and 1,024 characters.
_LONGEST_NAME, _LONGEST_DESCRIPTION = 250, 900


def outcome(outcome: Outcome, _page: Page) -> str:
    """Return the log of one run."""
    rules: dict[str, Check] = {}
    for check in outcome.checks:
        if not rules.setdefault(checks.code(check), check).why:  # one that passed has no reason
            rules[checks.code(check)] = check
    order = {code: index for index, code in enumerate(rules)}
    driver = {
        "name": "backends",
        "version": checks.line(outcome.tool).removeprefix("backends ") or "unknown",
        "rules": [_rule(check, outcome) for check in rules.values()],
    }
    notifications = [
        {
            "level": "note",
            "message": {"text": _unlinked(f"{checks.code(check)}: {checks.reason(check)}")},
            "associatedRule": {"id": checks.code(check), "index": order[checks.code(check)]},
        }
        for check in outcome.with_status(Status.UNKNOWN)
    ]
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"backends/{checks.line(outcome.kind)}/"},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "results": [
            _result(outcome, check, number, order[checks.code(check)])
            for check, number in checks.numbered(outcome.checks)
            if check.status in (Status.FAILED, Status.WAIVED)
        ],
        "properties": {
            "title": checks.line(outcome.title),
            "subject": checks.line(outcome.subject),
            "created": checks.line(outcome.created),
            **{str(status): len(outcome.with_status(status)) for status in Status},
        },
    }
    return indented({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(check: Check, outcome: Outcome) -> dict[str, Any]:
    code, why = checks.code(check), checks.line(check.why)
    title = checks.line(check.title) or code
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", code))
    full = f"{title}. {why}" if why else title
    parts = [markdown.literal(text) for text in (check.why, checks.action(check)) if text]
    parts += [markdown.fenced(check.command, "sh")] if check.command else []
    rule: dict[str, Any] = {
        "id": code,
        "shortDescription": {"text": shortened(title, _LONGEST_DESCRIPTION)},
        "fullDescription": {"text": shortened(full, _LONGEST_DESCRIPTION)},
        "help": {
            "text": "\n".join(text for _, text in checks.advice(check)) or title,
            "markdown": "\n\n".join(parts) or markdown.literal(title),
        },
        "defaultConfiguration": {"level": str(check.severity)},
        "properties": {
            "tags": list(dict.fromkeys(("backends", checks.line(outcome.kind)))),
            "problem.severity": _PROBLEMS[check.severity],
        },
    }
    if name and name != code:
        rule["name"] = name[:_LONGEST_NAME]
    if re.fullmatch(r"https?://[\w./#?&=%~+:-]{1,2000}", check.documentation, re.ASCII):
        rule["helpUri"] = check.documentation
    return rule


def _result(outcome: Outcome, check: Check, number: int, index: int) -> dict[str, Any]:
    path, line = checks.location(outcome, check)
    evidence = dict(checks.evidence(check))
    place = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(path, safe="/")},
            "region": {"startLine": line},
        },
        "logicalLocations": [
            {"fullyQualifiedName": name, "kind": "fact"} for name in evidence or (checks.code(check),)
        ],
    }
    fingerprint = checks.fingerprint(check, number, outcome.kind)
    result: dict[str, Any] = {
        "ruleId": checks.code(check),
        "ruleIndex": index,
        "level": str(check.severity),
        "message": {"text": _unlinked(checks.sentence(check)) or checks.code(check)},
        "locations": [place],
        "partialFingerprints": {"backendsCheck/v1": fingerprint},
        "properties": {"evidence": evidence},
    }
    if check.status is Status.WAIVED:
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": checks.reason(check)}
        ]
    return result


def _unlinked(text: str) -> str:
    """Return text in which "[words](target)" is not a link."""
    return re.sub(r"([\\\[\]])", r"\\\1", text) if "](" in text else text
