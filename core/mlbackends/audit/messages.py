"""The table of error messages, and what a pasted text is diagnosed with.

pasted/messages/*.toml has a table for each, named by its code; `Message` has the fields. In texts and
commands {name} is a group of the pattern, {torch.version} a value of the report, as in hazards.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mlbackends.audit import hazard_table
from mlbackends.audit.paste import Paste, unrecognised
from mlbackends.audit.policy.selection import Values
from mlbackends.audit.runner import examine
from mlbackends.base.tables import table
from mlbackends.model.audit import Check, Outcome, Place, Problem, Severity, Status

_FILES = ("build", "gpus", "memory", "engines", "models", "packages", "imports")
#: What is shown without --all: the primary cause, and at most two others.
_SHOWN = 3
#: What is known of releases is about something else, unless the text is about results.
_OF_RESULTS = "known-wrong-numbers"
_ABOUT_RESULTS = re.compile(
    r"\b(?:nans?|wrong|incorrect|garbage|gibberish|inaccurate|accuracy|diverge[sd]?|allclose)\b",
    re.IGNORECASE,
)


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a message means where conditions on the report hold, written as those of hazards."""

    where: tuple[str, ...] = ()
    cause: str = ""
    fix: str = ""
    command: str = ""


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error message. pattern: found within one line. cause: what it means, fix: what ends it.

    where: conditions on the report without which it means nothing. vague: others follow from the same cause
    and say more, as where it only reports that a process ended. hazards: those that name the cause on this
    machine; one that is found gives the fix. cases: other texts, by conditions; the first that hold. example:
    a line that it is found in.
    """

    pattern: str
    cause: str
    fix: str
    example: str
    sources: tuple[str, ...]
    command: str = ""
    severity: Severity = Severity.ERROR
    problem: Problem = Problem.USER
    vague: bool = False
    hazards: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()


class _Found(NamedTuple):
    rank: tuple[Any, ...]
    check: Check
    hazards: tuple[str, ...] = ()


class _Lines:
    """Lines of a text in which a message is searched, with their numbers."""

    def __init__(self, lines: Mapping[str, int]) -> None:
        self.text = "\n".join(lines)
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self._numbers = [*lines.values()]

    def number(self, at: int) -> int:
        """Return the number of the line of a position."""
        return self._numbers[bisect_right(self._starts, at) - 1]


@cache
def messages() -> dict[str, Message]:
    """Return the messages, by code."""
    files = (table(f"audit/pasted/messages/{name}.toml") for name in _FILES)
    return {code: msgspec.convert(row, Message) for file in files for code, row in file.items()}


def diagnose(
    paste: Paste, *, only: Sequence[str] = (), ignored: Sequence[str] = (), details: bool = False
) -> Outcome:
    """Return the primary cause first, then others by rank; with details also what was not found.

    An error before a warning, then a message of an exception before another and before a hazard, then what
    comes first in the text. only, ignored: codes of hazards; with only, messages are left out.
    Raises BadInput for a text in which nothing is known.
    """
    found = [*_of_messages(paste)]
    if not (found or paste.formats or paste.exceptions):
        raise unrecognised(paste)
    found = [] if only else found
    outcome = examine(paste.report, only=only, ignored=ignored, subject=paste.subject)
    hazards: dict[str, Check] = {}
    for check in outcome.failed():
        hazards.setdefault(check.code, check)
    explained: set[str] = set()
    for number, one in enumerate(found):
        if code := next((code for code in one.hazards if code in hazards), ""):
            explained.add(code)
            hint, command = hazards[code].hint, hazards[code].command
            why = f"{one.check.why} Here: {hazards[code].message}"
            found[number] = one._replace(check=replace(one.check, why=why, hint=hint, command=command))
    found += [_of_hazard(paste, check) for check in outcome.failed() if check.code not in explained]
    failed = [one.check for one in sorted(found, key=lambda one: one.rank)]
    others = [
        replace(check, status=Status.UNKNOWN, message="not checked: the text does not state enough")
        if check.status is Status.PASSED
        else check
        for check in outcome.checks
        if check.status is not Status.FAILED
    ]
    about_results = bool(_ABOUT_RESULTS.search(paste.text))
    # A note is no cause of what went wrong.
    few = [
        check
        for check in failed
        if (about_results if check.code == _OF_RESULTS else check.severity is not Severity.NOTE)
    ]
    shown = [*failed, *others] if details else few[:_SHOWN]
    is_known = any(one.rank[1] != _OF_HAZARD for one in found)
    if not (is_known or only) and (unknown := _unknown(paste)):
        shown.append(unknown)
    title = f"Known causes in {', '.join(paste.formats) or 'the text'}"
    if paste.cut[1]:
        title += f", without the {paste.cut[1]:,} lines after line {paste.cut[0]:,}, which were not read"
    return replace(outcome, title=title, checks=tuple(shown))


#: The second part of a rank: an exception's message, another line, a hazard, and what follows from others.
_OF_EXCEPTION, _OF_LINE, _OF_HAZARD, _OF_OTHERS = range(4)


def _of_messages(paste: Paste) -> Iterator[_Found]:
    """Yield each message that is found; of those in one line the first of the table."""
    # The first exception is the cause of those that follow from it.
    texts = (paste.exceptions, _OF_EXCEPTION), (paste.notable, _OF_LINE), (paste.joined, _OF_LINE)
    places = [(_Lines(lines), level) for lines, level in texts]
    known, values = set[int](), Values(paste.report)
    manager = paste.stated.get("python.manager")
    is_uv = manager is not None and manager.value == "uv"
    for number, (code, message) in enumerate(messages().items()):
        search = re.compile(message.pattern, re.MULTILINE).search
        found = ((lines, level, match) for lines, level in places if (match := search(lines.text)))
        lines, level, match = next(found, (None, 0, None))
        if lines is None or match is None or (line := lines.number(match.start())) in known:
            continue
        if not all(hazard_table.holds(values, one) for one in message.where):
            continue
        known.add(line)
        # In alternatives a name can be given once, so that {name} is also the group "name_".
        own = {name.rstrip("_"): "" for name in match.groupdict()}
        own |= {name.rstrip("_"): value for name, value in match.groupdict().items() if value}
        usual = Case(cause=message.cause, fix=message.fix, command=message.command)
        cases = (case for case in message.cases if all(hazard_table.holds(values, one) for one in case.where))
        case = next(cases, usual)
        cause = hazard_table.filled(values, case.cause, own)
        command = hazard_table.filled(values, case.command, own, is_command=True)
        check = Check(
            code=code,
            title=cause.rstrip("."),
            severity=message.severity,
            status=Status.FAILED,
            message=f"line {paste.number(line)}: {paste.line_text(line)}",
            why=cause,
            hint=hazard_table.filled(values, case.fix, own),
            command=_by_uv(command) if is_uv else command,
            evidence={f"line {paste.number(line)}": paste.line_text(line)},
            place=Place(paste.subject, paste.number(line)),
            documentation=_address(message.sources[0]),
            problem=message.problem,
        )
        level = _OF_OTHERS if message.vague else level
        yield _Found((-message.severity.level, level, line, number), check, message.hazards)


def _by_uv(command: str) -> str:
    return re.sub(r"\bpip (install|uninstall)(?: -y)?", r"uv pip \1", command)


def _address(source: str) -> str:
    """Return the address of a thread "owner/name#1"; a source with another form is one, or has none."""
    name, sign, number = source.partition("#")
    if sign and number.isdecimal():
        return f"https://github.com/{name}/issues/{number}"
    return source if source.startswith("https:") else ""


def _of_hazard(paste: Paste, check: Check) -> _Found:
    """Return a finding of a hazard, with the line of its evidence that is stated."""
    names = (name.replace(".facts.", ".") for name in check.evidence)
    stated = next((paste.stated[name] for name in names if name in paste.stated), None)
    if stated is None:
        probes = {name.partition(".")[0] for name in check.evidence}
        stated = next((one for name, one in paste.stated.items() if name.partition(".")[0] in probes), None)
    line = paste.line(stated.at) if stated else 0
    if stated:
        message = f"{check.message}; line {paste.number(line)}: {paste.line_text(line)}"
        check = replace(check, message=message, place=Place(paste.subject, paste.number(line)))
    return _Found((-check.severity.level, _OF_HAZARD, line, 0), check)


def _unknown(paste: Paste) -> Check | None:
    """Return what to report of an exception that no message of the table is found in."""
    if not paste.exceptions:
        return None
    line = [*paste.exceptions.values()][-1]
    return Check(
        code="unknown-message",
        title="An error message that is not in the table",
        severity=Severity.ERROR,
        status=Status.UNKNOWN,
        message=f"not known: line {paste.number(line)}: {paste.line_text(line)}",
    )
