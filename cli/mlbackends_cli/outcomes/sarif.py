"""SARIF 2.1.0 as code scanning reads it: a rule a code, a result for each time that it failed.

What passed or does not apply is a rule without a result: code scanning would show either as an alert.
What could not be told is a notification of the run.
"""

import re
from typing import Any

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import checks, markdown
from mlbackends_cli.checkout import location
from mlbackends_cli.output import indented
from mlbackends_cli.plain import shortened
from mlbackends_cli.terminal import Page

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_PROBLEMS = {Severity.NOTE: "recommendation", Severity.WARNING: "warning", Severity.ERROR: "error"}
_LONGEST_NAME, _LONGEST_DESCRIPTION = 250, 900
"""Code scanning takes 255 and 1,024 characters."""


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the log of one run."""
    del page
    rules: dict[str, Check] = {}
    for check in outcome.checks:
        if not rules.setdefault(_id(check), check).why:  # what passed tells less
            rules[_id(check)] = check
    order = {code: index for index, code in enumerate(rules)}
    told = [
        each
        for each in checks.numbered(outcome.checks)
        if each[0].status in (Status.FAILED, Status.WAIVED)
    ]
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "backends",
                "version": checks.line(outcome.tool).removeprefix("backends ") or "unknown",
                "rules": [_rule(check, outcome) for check in rules.values()],
            }
        },
        "automationDetails": {"id": f"backends/{checks.line(outcome.kind)}/"},
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    _notification(check, order[_id(check)])
                    for check in outcome.with_status(Status.UNKNOWN)
                ],
            }
        ],
        "results": [_result(outcome, *each, order[_id(each[0])]) for each in told],
        "properties": {
            "title": checks.line(outcome.title),
            "subject": checks.line(outcome.subject),
            "created": checks.line(outcome.created),
            **{str(each): len(outcome.with_status(each)) for each in Status},
        },
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return indented(log)


def _id(check: Check) -> str:
    return checks.line(check.code)


def _rule(check: Check, outcome: Outcome) -> dict[str, Any]:
    title = checks.line(check.title) or _id(check)
    advice = checks.advice(check)
    code = _id(check)
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", code))
    why = checks.line(check.why)
    rule: dict[str, Any] = {
        "id": code,
        "shortDescription": {"text": shortened(title, _LONGEST_DESCRIPTION)},
        "fullDescription": {
            "text": shortened(f"{title}. {why}" if why else title, _LONGEST_DESCRIPTION)
        },
        "help": {
            "text": "\n".join(text for _, text in advice) or title,
            "markdown": _help(check) or markdown.literal(title),
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


def _help(check: Check) -> str:
    parts = [markdown.literal(text) for text in (check.why, check.hint) if text]
    return "\n\n".join([*parts, *([markdown.fenced(check.command, "sh")] if check.command else [])])


def _result(outcome: Outcome, check: Check, number: int, index: int) -> dict[str, Any]:
    path, line = location(outcome, check)
    result: dict[str, Any] = {
        "ruleId": _id(check),
        "ruleIndex": index,
        "level": str(check.severity),
        "message": {"text": _unlinked(checks.sentence(check)) or _id(check)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _address(path)},
                    "region": {"startLine": line},
                },
                "logicalLocations": [
                    {"fullyQualifiedName": name, "kind": "fact"}
                    for name in dict(checks.evidence(check)) or (_id(check),)
                ],
            }
        ],
        # Of what it is, not of what it says, so that an alert stays the same alert.
        "partialFingerprints": {
            "backendsCheck/v1": checks.fingerprint(outcome.kind, *checks.identity(check, number))
        },
        "properties": {"evidence": dict(checks.evidence(check))},
    }
    if check.status is Status.WAIVED:
        result["suppressions"] = [
            {
                "kind": "external",
                "status": "accepted",
                "justification": checks.reason(check),
            }
        ]
    return result


def _notification(check: Check, index: int) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": _unlinked(f"{_id(check)}: {checks.reason(check)}")},
        "associatedRule": {"id": _id(check), "index": index},
    }


def _unlinked(text: str) -> str:
    """Return text in which "[words](target)" is no link."""
    return re.sub(r"([\\\[\]])", r"\\\1", text) if "](" in text else text


def _address(path: str) -> str:
    from urllib.parse import quote

    return quote(path, safe="/")
