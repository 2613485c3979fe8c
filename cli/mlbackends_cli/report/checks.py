"""What formats share: a check in one sentence, its evidence, place and fingerprint; words for schedulers."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from mlbackends.fleet.fingerprint import fingerprints, whole
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.records import Report
from mlbackends_cli.text.plain import amount, one_line, shortened

_MOST_CHARACTERS = 2000
_MOST_EVIDENCE = 40
_SHORT_LINE_BYTES = 80
#: The variables that hold the root of GitHub's and GitLab's checkout; else it is the current folder.
_ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")

#: What a text begins with that is a command, and so keeps its letters.
_COMMANDS = frozenset(
    {"apt", "backends", "conda", "dnf", "export", "madvise", "pip", "sudo", "torch", "unset", "uv"}
)

#: The word before the reason of a check that did not fail.
ENDINGS = {
    Status.PASSED: "passed",
    Status.SKIPPED: "does not apply",
    Status.WAIVED: "waived",
    Status.UNKNOWN: "not checked",
}


def line(text: str) -> str:
    """Return any text as one line of limited length that is safe to print."""
    return one_line(shortened(text, _MOST_CHARACTERS))


def code(check: Check) -> str:
    """Return a check's code as one line."""
    return line(check.code)


def sentence(check: Check) -> str:
    """Return the check's message, or its title without one."""
    return line(check.message or check.title)


def cause(check: Check) -> str:
    """Return the reason of a check's status, without the status; its title without a message."""
    word = ENDINGS.get(check.status, "")
    return line(check.message).removeprefix(f"{word}: ") or line(check.title)


def reason(check: Check) -> str:
    """Return the status and reason of a check that did not fail: "not checked: the report has no nvidia"."""
    return f"{ENDINGS[check.status]}: {cause(check)}"


def advice(check: Check) -> list[tuple[str, str]]:
    """Return why it matters, what to do, and what to type, as (word, line); without empty ones."""
    rows = (("why", check.why), ("do", action(check)), ("type", check.command))
    return [(word, line(text)) for word, text in rows if text]


def action(check: Check) -> str:
    """Return what to do as a sentence: it begins with a capital, unless it begins with a command or name."""
    first, text = re.split(r"\W", check.hint, maxsplit=1)[0], check.hint
    is_word = first.isalpha() and text[len(first) :][:1] in (" ", ",", "") and first not in _COMMANDS
    return text[:1].upper() + text[1:] if is_word else text


def place(check: Check) -> str:
    """Return the place of the check's declaration as FILE:LINE; "" without one."""
    if check.place is None:
        return ""
    name = line(check.place.file)
    return f"{name}:{check.place.line}" if check.place.line else name


def evidence(check: Check, *, units: bool = False) -> list[tuple[str, str]]:
    """Return what was seen, as (dotted name, value).

    A value is JSON, but a text stays itself; with units it is written for people.
    """
    rows = []
    for name, value in list(check.evidence.items())[:_MOST_EVIDENCE]:
        if units:
            text = amount(name, value)
        elif isinstance(value, str):
            text = value
        else:
            try:
                text = msgspec.json.encode(value).decode()
            except (TypeError, ValueError, OverflowError):  # half a character, or no JSON
                text = str(value)
        rows.append((line(name), line(text)))
    more = len(check.evidence) - len(rows)
    return [*rows, ("and", f"{more} more; --format json has all")] if more else rows


def numbered(checks: Iterable[Check]) -> Iterator[tuple[Check, int]]:
    """Yield each check with its number among those of one name, from 1: a hazard may occur twice."""
    seen: Counter[tuple[str, str]] = Counter()
    for check in checks:
        name = check.code, check.instance
        seen[name] += 1
        yield check, seen[name]


def fingerprint(check: Check, number: int, *scope: str) -> str:
    """Return 32 hexadecimal digits that identify this check, in this run and in the next.

    They identify the check, not its message: a changed number is not a new finding.
    """
    parts = (*scope, check.code, *([check.instance] if check.instance else []), number)
    return hashlib.sha256(ascii(parts).encode()).hexdigest()[:32]


def short_line(text: str, ending: str = "") -> str:
    """Return text on one line with its ending, cut between two characters beyond 80 bytes in all."""
    text = line(text)
    room = _SHORT_LINE_BYTES - len(ending)
    data = text.encode(errors="replace")
    if len(data) > room:
        text = data[: room - 3].decode(errors="ignore").rstrip() + "..."
    return text + ending


def unknown_line(why: str) -> str:
    """Return the short line of what could not be determined."""
    return short_line(f"unknown: {why}")


def heading(outcome: Outcome) -> str:
    """Return what was checked, and on which machine."""
    return ", ".join(line(text) for text in (outcome.title, outcome.subject) if text)


def counts(outcome: Outcome) -> list[tuple[int, str]]:
    """Return the number of checks by status, the worst first, as (2, "warnings"), without zeros."""
    found = []
    for severity in reversed(Severity):
        count = sum(check.severity is severity for check in outcome.failed())
        found.append((count, f"{severity}s" if count != 1 else str(severity)))
    for status, word in (
        (Status.WAIVED, "waived"),
        (Status.UNKNOWN, "not checked"),
        (Status.SKIPPED, "not applicable"),
        (Status.PASSED, "passed"),
    ):
        found.append((len(outcome.with_status(status)), word))
    return [(count, word) for count, word in found if count]


def summary(outcome: Outcome) -> str:
    """Return the numbers of checks by status, as one line."""
    parts = [f"{count} {word}" for count, word in counts(outcome)]
    if not outcome.failed():
        parts.insert(0, "nothing found")
    return f"{heading(outcome)}: {', '.join(parts)}"


def not_failed(outcome: Outcome, *, details: bool) -> Iterator[tuple[str, Status, list[Check]]]:
    """Yield what did not fail, by status, with a title; with details also what passed."""
    titles = {"Accepted": Status.WAIVED, "Not checked": Status.UNKNOWN}
    if details:
        titles |= {"Does not apply": Status.SKIPPED, "Passed": Status.PASSED}
    for title, status in titles.items():
        if found := outcome.with_status(status):
            yield title, status, [*found]


# ---- the file and line of a check for a CI service ------------------------------------------


def location(outcome: Outcome, check: Check) -> tuple[str, int]:
    """Return the file and line that a check is shown at.

    Services reject a finding without a file: one that is not declared in a file is shown at the report that
    was examined, or at a name for the machine, line 1.
    """
    if check.place is not None:
        return checkout_path(check.place.file), max(1, check.place.line)
    if os.path.exists(outcome.subject):
        return checkout_path(outcome.subject), 1
    return re.sub(r"[^\w.-]+", "-", one_line(outcome.subject)).strip("-.") or "machine", 1


def checkout_path(file: str) -> str:
    """Return a file's path from the root of the checkout, with "/"; its bare name if it is outside."""
    try:
        root = next(filter(None, map(os.environ.get, _ROOTS)), os.curdir)
        relative = os.path.relpath(os.path.realpath(file), os.path.realpath(root))
    except (OSError, ValueError):  # the current folder is gone; another drive; a NUL
        relative = os.pardir
    if relative.split(os.sep)[0] in (os.pardir, os.curdir):
        relative = os.path.basename(os.path.abspath(file)) or "checkout"
    return one_line(relative.replace(os.sep, "/")) or "checkout"


_FACTS = (
    "cpu.capability", "cpu.microarchitecture", "host.kernel_release", "host.libc_version",
    "nvidia.driver_release", "nvidia.cuda_version", "rocm.driver_version", "rocm.runtime_version",
)  # fmt: skip
#: The probes that report cards themselves, not an interface to them.
_DEVICES = ("nvidia", "rocm", "xpu", "gaudi", "ascend", "neuron", "tpu", "mtia")
#: Of the value and of the name of a label in Kubernetes.
_LONGEST_WORD = 63
_NOT_IN_A_WORD = re.compile(r"[^A-Za-z0-9._-]+")


def features(report: Report) -> dict[str, str]:
    """Return facts by their dotted names, the cards with their number, and the fingerprint, as words."""
    found = {}
    for name in _FACTS:
        probe, _, fact = name.partition(".")
        value = report.probes[probe].facts.get(fact) if probe in report.probes else None
        found[name] = value if isinstance(value, str) else ""
    for probe in _DEVICES:
        devices = report.probes[probe].devices if probe in report.probes else ()
        # An instance of a card is listed together with its card.
        cards = [device for device in devices if device.kind != "mig"]
        names = {card.name for card in cards}
        found[f"{probe}.devices"] = str(len(cards)) if cards else ""
        found[f"{probe}.devices.name"] = names.pop() if len(names) == 1 else ""
    found["fingerprint"] = whole(fingerprints(report))
    return {name: text for name, value in found.items() if (text := word(value))}


def word(text: str) -> str:
    """Return text of letters, digits, "-", "_" and ".", which neither begins nor ends with a sign."""
    words = _NOT_IN_A_WORD.sub("-", one_line(text)[:1000])
    return words.strip("._-")[:_LONGEST_WORD].strip("._-")


def moment(created: str) -> datetime | None:
    """Return the time of a report; None if it is not a time or has no zone."""
    try:
        found = datetime.fromisoformat(created)
    except ValueError:
        return None
    return found if found.tzinfo else None
