"""JUnit XML as Jenkins, GitLab and Azure read it: one suite, one test case a check.

Only an error is a failure: services turn a pipeline red for each, whatever the exit code is. So a
warning, a note and what was not checked are skipped cases whose message begins with the word.
"""

import os
import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from mlbackends.model.audit import Outcome, Severity, Status
from mlbackends_cli.report import checks
from mlbackends_cli.terminal import Page


def outcome(outcome: Outcome, _page: Page) -> str:
    """Return the document."""
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
    # The dotted name by which a service files the cases: backends.doctor.node0115.
    parts = ["backends", outcome.kind]
    if os.path.exists(outcome.subject):
        parts.append(os.path.basename(os.path.abspath(outcome.subject)).removesuffix(".json"))
    class_name = ".".join(re.sub(r"[^\w-]+", "_", checks.line(part)) for part in parts)
    for check, number in checks.numbered(outcome.checks):
        name = " ".join(filter(None, (check.code, check.instance)))
        # Services identify cases only by their names.
        name = checks.line(name) + (f" ({number})" if number > 1 else "")
        case = SubElement(suite, "testcase", name=name, classname=class_name, time="0")
        if check.status is not Status.PASSED:
            if check.status is not Status.FAILED:
                tag, kind, message = "skipped", str(check.status), checks.reason(check)
            elif check.severity is Severity.ERROR:
                tag, kind, message = "failure", str(check.severity), checks.sentence(check)
            else:
                tag, kind = "skipped", str(check.severity)
                message = f"{kind}: {checks.sentence(check)}"
            rows = [
                ("what", checks.line(check.title)),
                *checks.advice(check),
                *([("declared in", place)] if (place := checks.place(check)) else []),
                *checks.evidence(check),
                *([("see", checks.line(check.documentation))] if check.documentation else []),
            ]
            ending = SubElement(case, tag, type=kind, message=message)
            ending.text = "\n".join(f"{name}: {value}" for name, value in rows)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'
