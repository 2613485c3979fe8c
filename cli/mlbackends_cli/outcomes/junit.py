"""JUnit XML as Jenkins, GitLab and Azure read it: one suite, one test case a check.

Only an error is a failure: services turn a pipeline red for each, whatever the exit code says. So a
warning, a note and what could not be told are skipped cases whose message begins with the word.
"""

import os
import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import checks
from mlbackends_cli.terminal import Page


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the document."""
    del page
    failures = outcome.failed(Severity.ERROR)
    passed = outcome.with_status(Status.PASSED)
    counts = {
        "tests": str(len(outcome.checks)),
        "failures": str(len(failures)),
        "errors": "0",
        "skipped": str(len(outcome.checks) - len(failures) - len(passed)),
        "time": "0",
    }
    root = Element("testsuites", name="backends")
    suite = SubElement(root, "testsuite", {"name": checks.heading(outcome), **counts})
    if outcome.created:
        suite.set("timestamp", checks.line(outcome.created))
    properties = SubElement(suite, "properties")
    for name in ("kind", "subject", "tool", "schema"):
        value = checks.line(getattr(outcome, name))
        SubElement(properties, "property", name=f"backends.{name}", value=value)
    for check, number in checks.numbered(outcome.checks):
        _case(suite, check, number, _class_name(outcome))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _class_name(outcome: Outcome) -> str:
    """Return the dotted name by which a service files the cases: backends.doctor.node0115."""
    parts = ["backends", outcome.kind]
    if os.path.exists(outcome.subject):
        name = os.path.basename(outcome.subject.rstrip(os.sep))
        parts.append(name.removesuffix(".json"))
    return ".".join(re.sub(r"[^\w-]+", "_", checks.line(part)) for part in parts)


def _case(suite: Element, check: Check, number: int, class_name: str) -> None:
    # Services tell cases apart by their names alone.
    name = checks.name(check, number)
    case = SubElement(suite, "testcase", name=name, classname=class_name, time="0")
    if check.status is Status.PASSED:
        return
    if check.status is not Status.FAILED:
        skipped = SubElement(case, "skipped", type=str(check.status), message=checks.reason(check))
        skipped.text = _text(check)
        return
    told = checks.sentence(check)
    severity = str(check.severity)
    if check.severity is Severity.ERROR:
        ending = SubElement(case, "failure", type=severity, message=told)
    else:
        ending = SubElement(case, "skipped", type=severity, message=f"{severity}: {told}")
    ending.text = _text(check)


def _text(check: Check) -> str:
    rows = [("what", checks.line(check.title)), *checks.advice(check)]
    rows += [("declared in", place)] if (place := checks.place(check)) else []
    rows += checks.evidence(check)
    rows += [("see", checks.line(check.documentation))] if check.documentation else []
    return "\n".join(f"{name}: {value}" for name, value in rows)
