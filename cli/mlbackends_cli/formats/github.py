"""GitHub workflow commands: annotations on the run, the worst first, and a summary of the step.

GitHub shows ten annotations of a kind; the tenth then names the others, and all of them
are in the log.
"""

import os
import sys
from collections.abc import Iterable

from mlbackends.base import registry
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli.report import checks
from mlbackends_cli.terminal import Page

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_MOST_SHOWN = 10
#: Maximum size of a step's summary in bytes, by all writers; GitHub drops a larger one completely.
SUMMARY_LIMIT = 1 << 20


def outcome(outcome: Outcome, _page: Page) -> str:
    """Return the commands, the rest as groups of the log, and one line for people."""
    lines: list[str] = []
    folded: list[Check] = []
    for severity in reversed(Severity):
        found = [check for check in outcome.failed() if check.severity is severity]
        shown = found if len(found) <= _MOST_SHOWN else found[: _MOST_SHOWN - 1]
        for check in shown:
            texts = [checks.sentence(check)]
            texts += [f"{word}: {text}" for word, text in checks.advice(check)]
            properties = {}
            if check.place is not None:
                properties["file"] = checks.checkout_path(check.place.file)
                if check.place.line > 0:
                    properties["line"] = str(check.place.line)
            properties["title"] = f"backends {outcome.kind}: {check.code}"
            lines.append(_command(_COMMANDS[severity], properties, "\n".join(texts)))
        if rest := found[len(shown) :]:
            codes = ", ".join(dict.fromkeys(checks.code(check) for check in rest))
            title = f"backends {outcome.kind}: {len(rest)} more {severity}s"
            text = f"{codes}\nThey are in the log and in the summary."
            lines.append(_command(_COMMANDS[severity], {"title": title}, text))
            folded += rest
    rows = []
    for check in folded:
        advice = (f" {word}: {text}" for word, text in checks.advice(check) if word != "why")
        rows.append(f"{check.severity} {check.code}: {checks.sentence(check)}{''.join(advice)}")
    lines += _group("more findings", rows)
    for status, title in (
        (Status.WAIVED, "accepted"),
        (Status.UNKNOWN, "not checked"),
    ):
        rows = [f"{check.code}: {checks.reason(check)}" for check in outcome.with_status(status)]
        lines += _group(title, rows)
    return "\n".join([*lines, _log_line(f"backends: {checks.summary(outcome)}"), ""])


def publish(outcome: Outcome) -> None:
    """Append a summary to the file that GITHUB_STEP_SUMMARY names, if it names one.

    A summary that cannot be written is a warning on standard error, and changes no exit code: the
    outcome was written.
    """
    file = os.environ.get("GITHUB_STEP_SUMMARY")
    if not file:
        return
    warning = ""
    try:
        with open(file, "ab") as summary:
            room = SUMMARY_LIMIT - summary.tell() - 1
            text = registry.load("mlbackends_cli.formats", "markdown").within(outcome, room)
            if text:
                summary.write(("\n" + text if summary.tell() else text).encode())
            else:
                warning = f"is full ({SUMMARY_LIMIT:,} bytes); nothing was added"
    except (OSError, ValueError) as error:
        warning = f"cannot be written: {error}"
    if warning and sys.stderr is not None:
        text = checks.line(f"the step's summary {warning}")
        sys.stderr.write(f"backends: {text}\n")


def _command(name: str, properties: dict[str, str], text: str) -> str:
    pairs = []
    for key, value in properties.items():
        value = _escaped(_log_line(value)).replace(":", "%3A").replace(",", "%2C")
        pairs.append(f"{key}={value}")
    data = "\n".join(map(_log_line, text.split("\n")))
    return f"::{name} {','.join(pairs)}::{_escaped(data)}"


def _group(title: str, rows: Iterable[str]) -> list[str]:
    lines = [_log_line(f"- {row}") for row in rows]
    return [f"::group::{len(lines)} {title}", *lines, "::endgroup::"] if lines else []


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _log_line(text: str) -> str:
    """Return a line without the older form of commands, which the runner takes anywhere in a line."""
    return checks.line(text).replace("##[", "##\u2060[")
