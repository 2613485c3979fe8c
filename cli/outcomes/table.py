"""The page for people: what failed, the worst first, with why and what to do; then what could not be told."""

from mlbackends.cli import catalogue, checks
from mlbackends.cli.prose import Passage, printed
from mlbackends.cli.terminal import Page
from mlbackends.model.audit import Check, Outcome, Severity, Status

_MARKS = {
    Severity.ERROR: ("✗", "x", "31"),
    Severity.WARNING: ("!", "!", "33"),
    Severity.NOTE: ("·", "-", "36"),
}
_TERM = len("type")
"""As wide is the column of terms, so that a command stands below what is told with it."""


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the page; with details also the evidence, what passed, and what does not apply."""
    parts = [_failed(check, page) for check in outcome.failed()]
    for title, status in (
        ("Accepted until a day", Status.WAIVED),
        ("Not checked", Status.UNKNOWN),
        *((("Does not apply", Status.SKIPPED), ("Passed", Status.PASSED)) if page.details else ()),
    ):
        lines = [
            (checks.line(check.code), checks.cause(check)) for check in outcome.with_status(status)
        ]
        if lines:
            parts.append(printed((Passage(title, tuple(lines)),), page))
    text = "\n".join([*parts, f"{checks.summary(outcome)}\n"])
    return text if page.unicode else text.encode("ascii", "replace").decode()


def _failed(check: Check, page: Page) -> str:
    fancy, plain, color = _MARKS[check.severity]
    word = f"{fancy if page.unicode else plain} {check.severity}"
    # 39 ends the colour alone: the heading around it stays bold.
    head = f"\033[{color}m{word}\033[39m" if page.color else word
    place = f" ({declared})" if (declared := checks.place(check)) else ""
    advice = dict(checks.advice(check))
    command = advice.pop("type", "")
    lines = [("", checks.sentence(check))]
    lines += [(word.ljust(_TERM), text) for word, text in advice.items()]
    if page.details and check.evidence:
        lines += [("seen", f"{name} = {value}") for name, value in _evidence(check)]
    text = printed((Passage(f"{head} {checks.line(check.code)}{place}", tuple(lines)),), page)
    # On a line of its own and never broken: it is there to be copied.
    return f"{text}  {'type'.ljust(_TERM)}  {command}\n" if command else text


def _evidence(check: Check) -> list[tuple[str, str]]:
    values = check.evidence
    return [
        (name, checks.line(catalogue.amount(name, values[name])) if name in values else value)
        for name, value in checks.evidence(check)
    ]
