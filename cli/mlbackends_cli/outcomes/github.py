"""GitHub workflow commands: annotations on the run, the worst first, and a summary of the step.

GitHub shows ten annotations of a kind; the tenth then says which more there are, and all of them
stand in the log.
"""

import os
import sys
from collections.abc import Iterable

from mlbackends.model import registry
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import checks
from mlbackends_cli.checkout import path
from mlbackends_cli.terminal import Page

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_MOST_SHOWN = 10
SUMMARY_LIMIT = 1 << 20
"""So many bytes the summary of a step may have, whatever wrote them; with more, all of it is dropped."""


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the commands, what they leave out as groups of the log, and one line for people."""
    del page
    lines: list[str] = []
    folded: list[Check] = []
    for severity in reversed(Severity):
        alike = [check for check in outcome.failed() if check.severity is severity]
        shown = alike if len(alike) <= _MOST_SHOWN else alike[: _MOST_SHOWN - 1]
        lines += [_annotation(outcome, check) for check in shown]
        if rest := alike[len(shown) :]:
            lines.append(_fold(outcome, rest))
            folded += rest
    lines += _group("more findings", map(_row, folded))
    for status, title in ((Status.WAIVED, "accepted until a day"), (Status.UNKNOWN, "not checked")):
        found = outcome.with_status(status)
        lines += _group(title, (f"{check.code}: {checks.reason(check)}" for check in found))
    return "\n".join([*lines, _log_line(f"backends: {checks.summary(outcome)}"), ""])


def beside(outcome: Outcome) -> None:
    """Append a summary to the file that GITHUB_STEP_SUMMARY names, if it names one.

    A summary that cannot be written is told on standard error, and changes no exit code: the outcome
    was written.
    """
    file = os.environ.get("GITHUB_STEP_SUMMARY")
    if not file:
        return
    try:
        with open(file, "ab") as summary:
            room = SUMMARY_LIMIT - summary.tell() - 1
            text = registry.load("mlbackends_cli.outcomes", "markdown").within(outcome, room)
            if text:
                summary.write(("\n" + text if summary.tell() else text).encode())
            else:
                _warn(f"the step's summary is full ({SUMMARY_LIMIT:,} bytes); nothing was added")
    except (OSError, ValueError) as error:
        _warn(f"the step's summary cannot be written: {error}")


def _warn(words: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"backends: {checks.line(words)}\n")


def _annotation(outcome: Outcome, check: Check) -> str:
    told = [checks.sentence(check), *(f"{word}: {text}" for word, text in checks.advice(check))]
    properties = {}
    if check.place is not None:
        properties["file"] = path(check.place.file)
        if check.place.line > 0:
            properties["line"] = str(check.place.line)
    properties["title"] = f"backends {outcome.kind}: {check.code}"
    return _command(_COMMANDS[check.severity], properties, "\n".join(told))


def _fold(outcome: Outcome, rest: list[Check]) -> str:
    kind = _COMMANDS[rest[0].severity]
    codes = ", ".join(dict.fromkeys(checks.line(check.code) for check in rest))
    title = f"backends {outcome.kind}: {len(rest)} more {rest[0].severity}s"
    return _command(kind, {"title": title}, f"{codes}\nThey stand in the log and in the summary.")


def _group(title: str, rows: Iterable[str]) -> list[str]:
    lines = [_log_line(f"- {row}") for row in rows]
    return [f"::group::{len(lines)} {title}", *lines, "::endgroup::"] if lines else []


def _row(check: Check) -> str:
    advice = "".join(f" {word}: {text}" for word, text in checks.advice(check) if word != "why")
    return f"{check.severity} {check.code}: {checks.sentence(check)}{advice}"


def _command(name: str, properties: dict[str, str], text: str) -> str:
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    data = "\n".join(map(checks.line, text.split("\n")))
    return f"::{name} {told}::{_escaped(_harmless(data))}"


def _property(text: str) -> str:
    words = _escaped(_harmless(checks.line(text)))
    return words.replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _log_line(text: str) -> str:
    """Return a line of the log, which starts with our word: no text of others makes it a command."""
    return _harmless(checks.line(text))


def _harmless(text: str) -> str:
    """Break the older form of commands, which the runner obeys anywhere in a line."""
    return text.replace("##[", "##\u2060[")
