"""A difference for people: by probe, what became worse first, and packages that only changed together."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlbackends.model.audit import Severity
from mlbackends.model.difference import Change, Difference, Kind
from mlbackends_cli.text.plain import amount, one_line

MARKS = {Kind.ADDED: "+", Kind.REMOVED: "-", Kind.CHANGED: "~"}
_PACKAGES = "packages.distributions."
_MOST_CHARACTERS = 160


class Part(NamedTuple):
    """What differs in a probe, the worst first. packages: those that are notes."""

    probe: str
    changes: list[Change]
    packages: list[Change]


def parts(difference: Difference) -> list[Part]:
    """Return each probe that differs, that with the worst change first."""
    found: dict[str, Part] = {}
    for change in worst_first(difference.changes):
        probe = change.name.partition(".")[0]
        part = found.setdefault(probe, Part(probe, [], []))
        (part.packages if _is_folded(change) else part.changes).append(change)
    return list(found.values())


def _is_folded(change: Change) -> bool:
    return change.severity is Severity.NOTE and change.name.startswith(_PACKAGES)


def worst_first(changes: Sequence[Change]) -> list[Change]:
    """Return changes by severity, those of one severity in their order."""
    return sorted(changes, key=lambda each: -each.severity.level)


def name_in_probe(change: Change) -> str:
    """Return a change's name without that of its probe; of a package, its name alone."""
    if _is_folded(change):
        return one_line(change.name.removeprefix(_PACKAGES))
    return one_line(change.name.partition(".")[2])


def values(change: Change) -> tuple[str, str]:
    """Return both values with their units; a long one is cut, since --format json has it whole."""
    name = change.name.rpartition(".")[2]
    before, after = (
        "" if value is None else one_line(amount(name, value))
        for value in (change.before, change.after)
    )
    return _cut(before), _cut(after)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def counts(difference: Difference) -> Iterator[tuple[int, str]]:
    """Yield how many changes there are of each severity, then of each kind; what is 0 is left out."""
    severities = [change.severity for change in difference.changes]
    kinds = [change.kind for change in difference.changes]
    for severity in reversed(Severity):
        if count := severities.count(severity):
            yield count, f"{severity}{'s' * (count != 1)}"
    for kind in Kind:
        if count := kinds.count(kind):
            yield count, str(kind)


def notes(difference: Difference) -> list[str]:
    """Return which two were compared and how much differs, and what was not compared."""
    numbers = ", ".join(f"{count} {word}" for count, word in counts(difference))
    names = f"from {one_line(difference.before.name)} to {one_line(difference.after.name)}"
    return [f"{names}: {numbers or 'they do not differ'}", *difference.notes]
