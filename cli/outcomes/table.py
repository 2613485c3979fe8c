"""The page for people: what failed, the worst first, with why and what to do; then what could not be told."""

from mlbackends.cli.plain import one_line, shortened
from mlbackends.cli.prose import Passage, printed
from mlbackends.cli.terminal import Page
from mlbackends.model.audit import Check, Outcome, Severity, Status

_MARKS = {
    Severity.ERROR: ("✗", "x", "31"),
    Severity.WARNING: ("!", "!", "33"),
    Severity.NOTE: ("·", "-", "36"),
}
_MOST_CHARACTERS = 2000


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the page; with details also what passed and what does not apply."""
    passages = [_failed(check, page) for check in outcome.failed()]
    for title, status in (
        ("Accepted until a day", Status.WAIVED),
        ("Not checked", Status.UNKNOWN),
        *((("Does not apply", Status.SKIPPED), ("Passed", Status.PASSED)) if page.details else ()),
    ):
        lines = [
            (check.code, _said(check.message or check.title))
            for check in outcome.with_status(status)
        ]
        if lines:
            passages.append(Passage(title, tuple(lines)))
    body = printed(tuple(passages), page)
    text = f"{body}\n{summary(outcome)}\n" if body else f"{summary(outcome)}\n"
    return text if page.unicode else text.encode("ascii", "replace").decode()


def summary(outcome: Outcome) -> str:
    """Return one line: how many checks ended how."""
    failed = outcome.failed()
    parts = [
        f"{count} {severity}{'s' if count != 1 else ''}"
        for severity in reversed(Severity)
        if (count := sum(check.severity is severity for check in failed))
    ] or ["nothing found"]
    for status, word in (
        (Status.WAIVED, "waived"),
        (Status.UNKNOWN, "not checked"),
        (Status.SKIPPED, "not for this machine"),
        (Status.PASSED, "passed"),
    ):
        if count := len(outcome.with_status(status)):
            parts.append(f"{count} {word}")
    return f"{outcome.title}, {one_line(outcome.subject)}: {', '.join(parts)}"


def _failed(check: Check, page: Page) -> Passage:
    fancy, plain, color = _MARKS[check.severity]
    mark = fancy if page.unicode else plain
    word = f"{mark} {check.severity}"
    head = f"\033[{color}m{word}\033[0m" if page.color else word
    place = f" ({check.place.file}:{check.place.line})" if check.place else ""
    lines = [("", _said(check.message or check.title))]
    for term, text in (("why", check.why), ("do", check.hint), ("type", check.command)):
        if text:
            lines.append((term, _said(text)))
    return Passage(f"{head} {one_line(check.code)}{place}", tuple(lines))


def _said(text: str) -> str:
    return one_line(shortened(text, _MOST_CHARACTERS))
