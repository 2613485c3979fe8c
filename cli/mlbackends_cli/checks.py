"""What the formats of an outcome say alike: a check in one sentence, its evidence, its fingerprint."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.records import FactValue
from mlbackends_cli.plain import one_line, shortened

_MOST_CHARACTERS = 2000
_MOST_EVIDENCE = 40

ENDINGS = {
    Status.PASSED: "passed",
    Status.SKIPPED: "does not apply",
    Status.WAIVED: "waived",
    Status.UNKNOWN: "not checked",
}
"""The word before why a check ended so, where it did not fail."""


def line(text: str) -> str:
    """Return any text as one line that is fit to be shown, and not endlessly long."""
    return one_line(shortened(text, _MOST_CHARACTERS))


def sentence(check: Check) -> str:
    """Return what was seen, or what was looked at where nothing was."""
    return line(check.message or check.title)


def cause(check: Check) -> str:
    """Return why a check ended so, without the word for how; what was looked at where nothing is told."""
    word = ENDINGS.get(check.status, "")
    return line(check.message).removeprefix(f"{word}: ") or line(check.title)


def reason(check: Check) -> str:
    """Return how a check that did not fail ended, and why: "not checked: the report has no nvidia"."""
    return f"{ENDINGS[check.status]}: {cause(check)}"


def advice(check: Check) -> list[tuple[str, str]]:
    """Return why it matters, what to do, and what to type, as (word, line); what is not told is left out."""
    told = (("why", check.why), ("do", check.hint), ("type", check.command))
    return [(word, line(text)) for word, text in told if text]


def place(check: Check) -> str:
    """Return where the check is declared, as FILE:LINE; "" where nothing declares it."""
    if check.place is None:
        return ""
    name = line(check.place.file)
    return f"{name}:{check.place.line}" if check.place.line else name


def evidence(check: Check) -> list[tuple[str, str]]:
    """Return what was seen, as (dotted name, value as JSON; a text stays itself)."""
    shown = list(check.evidence.items())[:_MOST_EVIDENCE]
    rows = [(line(name), line(_as_text(value))) for name, value in shown]
    more = len(check.evidence) - len(shown)
    return [*rows, ("and", f"{more} more; --format json has all")] if more else rows


def _as_text(value: FactValue) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):  # half a character, or no JSON
        return str(value)


def numbered(checks: Iterable[Check]) -> Iterator[tuple[Check, int]]:
    """Yield each check with its number among those told alike, from 1: a hazard may be there twice."""
    seen: Counter[tuple[str, str]] = Counter()
    for check in checks:
        alike = check.code, check.instance
        seen[alike] += 1
        yield check, seen[alike]


def identity(check: Check, number: int) -> tuple[object, ...]:
    """Return what tells a check from all others of its outcome, in this run and in the next one."""
    return (check.code, *([check.instance] if check.instance else []), number)


def name(check: Check, number: int) -> str:
    """Return that for people: "flash_cpu --shape 2,8,64,16", "cpu-quota-below-threads (2)"."""
    return line(" ".join(filter(None, (check.code, check.instance)))) + (
        f" ({number})" if number > 1 else ""
    )


def fingerprint(*parts: object) -> str:
    """Return 32 hexadecimal digits that stay the same as long as the parts do."""
    return hashlib.sha256(ascii(parts).encode()).hexdigest()[:32]


def counts(outcome: Outcome) -> list[tuple[int, str]]:
    """Return how many checks ended how, the worst first, as (2, "warnings"); what is 0 is left out."""
    failed = outcome.failed()
    found = []
    for severity in reversed(Severity):
        count = sum(check.severity is severity for check in failed)
        found.append((count, f"{severity}s" if count != 1 else str(severity)))
    for status, word in (
        (Status.WAIVED, "waived"),
        (Status.UNKNOWN, "not checked"),
        (Status.SKIPPED, "not for this machine"),
        (Status.PASSED, "passed"),
    ):
        found.append((len(outcome.with_status(status)), word))
    return [(count, word) for count, word in found if count]


def summary(outcome: Outcome) -> str:
    """Return one line: how many checks ended how."""
    parts = [f"{count} {word}" for count, word in counts(outcome)]
    if not outcome.failed():
        parts.insert(0, "nothing found")
    return f"{heading(outcome)}: {', '.join(parts)}"


def heading(outcome: Outcome) -> str:
    """Return what was looked for, and where."""
    return (
        f"{line(outcome.title)}, {line(outcome.subject)}"
        if outcome.subject
        else line(outcome.title)
    )
