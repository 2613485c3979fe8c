"""The page for people: what failed, the worst first, with why and what to do; then what could not be told."""

from collections.abc import Iterable

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import catalogue, checks
from mlbackends_cli.plain import without_commands
from mlbackends_cli.prose import Passage, printed
from mlbackends_cli.terminal import Page

_MARKS = {
    Severity.ERROR: ("✗", "x", "31"),
    Severity.WARNING: ("!", "!", "33"),
    Severity.NOTE: ("·", "-", "36"),
}
_TERM = len("type")
"""As wide is the column of terms, so that a command stands below what is told with it."""


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the page; with details also the evidence, what passed, and what does not apply."""
    parts = [_failed(alike, page) for alike in _alike(outcome.failed())]
    # The title of a hazard says what is wrong, that of a rule what should be.
    passed = "Looked for, and not there" if outcome.kind == "doctor" else "Passed"
    for title, status in (
        ("Accepted until a day", Status.WAIVED),
        ("Not checked", Status.UNKNOWN),
        *((("Does not apply", Status.SKIPPED), (passed, Status.PASSED)) if page.details else ()),
    ):
        if lines := _by_cause(outcome.with_status(status)):
            parts.append(printed((Passage(title, lines),), page))
    text = "\n".join([*parts, f"{checks.summary(outcome)}\n"])
    text = without_commands(text, "·" if page.unicode else ".")
    return text if page.unicode else text.encode("ascii", "replace").decode()


def _by_cause(ended: Iterable[Check]) -> tuple[tuple[str, str], ...]:
    """Return the codes as rows with their cause; those that share one stand together below it."""
    causes: dict[str, list[str]] = {}
    for check in ended:
        causes.setdefault(checks.cause(check), []).append(checks.line(check.code))
    alone = [(codes[0], cause) for cause, codes in causes.items() if len(codes) == 1]
    together = [
        ("", f"{cause}: {', '.join(codes)}") for cause, codes in causes.items() if len(codes) > 1
    ]
    return (*alone, *together)


def _alike(failed: Iterable[Check]) -> list[list[Check]]:
    """Return the checks in groups that differ in what was seen alone: the advice is given once."""
    groups: dict[tuple[object, ...], list[Check]] = {}
    for check in failed:
        key = (check.severity, check.code, checks.place(check), check.why, check.hint)
        groups.setdefault(key, []).append(check)
    return list(groups.values())


def _failed(alike: list[Check], page: Page) -> str:
    check = alike[0]
    fancy, plain, color = _MARKS[check.severity]
    word = f"{fancy if page.unicode else plain} {check.severity}"
    # 39 ends the colour alone: the heading around it stays bold.
    head = f"\033[{color}m{word}\033[39m" if page.color else word
    place = f" ({declared})" if (declared := checks.place(check)) else ""
    times = f", {len(alike)} times" if len(alike) > 1 else ""
    dash = "- " if len(alike) > 1 else ""
    lines = [("", f"{dash}{checks.sentence(each)}") for each in alike]
    advice = [row for row in checks.advice(check) if row[0] != "type"]
    lines += [(name.ljust(_TERM), text) for name, text in advice]
    if page.details:
        seen = dict.fromkeys(row for each in alike for row in _evidence(each))
        lines += [("seen", f"{name} = {value}") for name, value in seen]
    heading = f"{head} {checks.line(check.code)}{place}{times}"
    text = printed((Passage(heading, tuple(lines)),), page)
    commands = dict.fromkeys(checks.line(each.command) for each in alike if each.command)
    # On lines of their own and never broken: they are there to be copied.
    return text + "".join(f"  {'type'.ljust(_TERM)}  {command}\n" for command in commands)


def _evidence(check: Check) -> list[tuple[str, str]]:
    values = check.evidence
    return [
        (name, checks.line(catalogue.amount(name, values[name])) if name in values else value)
        for name, value in checks.evidence(check)
    ]
