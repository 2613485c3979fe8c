"""What a user requires of a report: `cudnn`, `cudnn>=9.10`, `cpu.cores>=8`, `cpu.capability==AVX512`."""

from string import ascii_letters
from typing import Any

from msgspec import Struct

from mlbackends.base import registry
from mlbackends.base.comparison import SIGNS, fits, in_unit_of
from mlbackends.base.condition import Comparison, Joined, Language, Unreadable, parse
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import UNCHECKED
from mlbackends.host.declared import facts_of
from mlbackends.model.records import Presence, Report
from mlbackends.survey import dotted

_LANGUAGE = Language(
    name=pattern(r"[A-Za-z]\w*(?:\.\w+)*"),
    word=pattern(r"[^,<>=!~]*[^,<>=!~\s]"),
    operators=SIGNS,
    clauses=True,
)


class Requirement(Struct, frozen=True):
    """A dotted name, and the clauses that its value must fit.

    A name without a dot is a probe: its presence, and its version if there are clauses.
    """

    text: str
    probe: str
    name: str
    clauses: tuple[tuple[str, str], ...]

    @staticmethod
    def parse(text: str) -> "Requirement":
        """Read a requirement; raises BadInput or UnknownName, with what would be right."""
        try:
            condition = parse(text, _LANGUAGE)
        except Unreadable as error:
            if not _LANGUAGE.name.match(text.strip()):
                example = "write a probe or a dotted name, and clauses: cudnn>=9.10,<10 or cpu.cores>=8"
                raise BadInput(f"the requirement {text!r} cannot be read", example) from None
            part = error.rest.partition(",")[0].strip()
            hint = f"a clause is one of {' '.join(SIGNS[1:])} and a value, such as >=9.10"
            if part[:2] in ("=>", "=<"):
                hint = f"did you mean {part[1]}={part[2:].strip()}?"
            value = part.lstrip("<>=!~").strip()
            if value and part[0] == "=" and part[1:].strip() == value:
                hint = f"did you mean =={value}?"
            message = f"the requirement {text!r} cannot be read at {part!r}"
            raise BadInput(message, hint) from None
        parts = condition.parts if isinstance(condition, Joined) else (condition,)
        comparisons = [part for part in parts if isinstance(part, Comparison)]
        name = comparisons[0].name
        probe = name.partition(".")[0]
        registry.load(registry.PROBES, probe)  # an unknown one is an error
        clauses = tuple(
            (comparison.operator, str(comparison.operand))
            for comparison in comparisons
            if comparison.operator
        )
        return Requirement(text.strip(), probe, name, clauses)


def check(need: Requirement) -> None:
    """Refuse what no machine could ever answer: a value that no probe reports, a clause that cannot fit it.

    Raises BadInput or UnknownName. Looks at no machine, so that a typing error is found everywhere.
    """
    if "." not in need.name:
        _try_clauses(need, "1.0", (), "a version")
        return
    facts = facts_of(need.probe)
    head, *path = need.name.split(".")[1:]
    names = (*facts, *dotted.FIELDS)
    if head not in names:
        raise UnknownName("value", need.name, tuple(f"{need.probe}.{name}" for name in names))
    fact = facts.get(head) if not path else None
    if fact and fact.order:
        _try_clauses(need, fact.order[0], fact.order, "a word that has an order")
    elif fact and fact.kind is bool:
        _try_clauses(need, True, (), "true or false")
    elif fact and fact.kind in (int, float):
        _try_clauses(need, 1, (), "a number")
        for sign, bound in need.clauses:
            ending = bound.lower()[-2:]
            kind = "hertz" if ending == "hz" else "bytes" if ending[-1:] == "b" else ""
            if kind and not head.endswith(f"_{kind}"):
                message = f"the requirement {need.text!r} can never be met"
                plain = f"{need.name}{sign}{bound.rstrip(f'{ascii_letters} ')}"
                raise BadInput(f"{message}: {need.name} is not a number of {kind}", f"write {plain}")


def _try_clauses(need: Requirement, sample: Any, order: tuple[str, ...], kind: str) -> None:
    for sign, bound in need.clauses:
        try:
            fits(sample, sign, bound, order)
        except BadInput as error:
            message = f"the requirement {need.text!r} can never be met"
            about = f"{need.name} is {kind}, and {sign}{bound} cannot be applied to it"
            example = f"such as {need.name}{'==true' if sample is True else f'>={sample}'}"
            raise BadInput(f"{message}: {about}", error.hint or example) from None


def is_decidable(report: Report, need: Requirement) -> bool:
    """Return whether the report determines it, so that `unmet` returns a definite answer."""
    probe = report.probes[need.probe]
    if probe.presence is None or not dotted.is_certain(probe):
        return False
    needs_version = bool(need.clauses) and need.name == need.probe
    return bool(probe.version) or not needs_version or probe.presence is Presence.ABSENT


def unmet(report: Report, need: Requirement) -> str:
    """Return why a requirement is not met, one sentence; "" where it is."""
    probe = report.probes[need.probe]
    first = f": {probe.reasons[0].message}" if probe.reasons else ""
    if probe.presence is None:
        failure = f": {probe.failure.message}" if probe.failure else first
        return f"{need.text}: {need.probe} could not be determined{failure}"
    if "." in need.name:
        facts = facts_of(need.probe)
        fact = facts.get(need.name.partition(".")[2])
        try:
            value = dotted.value(report, need.name, tuple(facts))
        except dotted.NoValue:
            return f"{need.text}: there is no value here{first}"
        if not need.clauses and value in (False, "", [], {}):
            return f"{need.text}: it is {_shown(value)}"
    else:
        value, fact = probe.version, None
        only_a_fact = probe.presence is Presence.FOUND and not (probe.libraries or probe.reasons)
        is_unchecked = any(reason.code in UNCHECKED for reason in probe.reasons)
        if probe.presence.level < report.depth.level and not (only_a_fact or is_unchecked):
            why = first or f", not {report.depth}"
            return f"{need.text}: {need.probe} is {probe.presence}{why}"
        if need.clauses and not value:
            about = f"{need.probe} is {probe.presence}, and its version could not be determined"
            return f"{need.text}: {about}"
    for sign, bound in need.clauses:
        if not fits(value, sign, bound, fact.order if fact else ()):
            found = in_unit_of(value, bound) or _shown(value)
            return f"{need.text}: {need.name} is {found}, required: {sign} {bound}"
    return ""


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value else repr(value)
