"""What a user requires of a report: `cudnn`, `cudnn>=9.10`, `cpu.cores>=8`, `cpu.capability==AVX512`."""

from typing import Any

from msgspec import Struct

from mlbackends.model import dotted, registry
from mlbackends.model.comparison import SIGNS, fits
from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Fact, Presence, ProbeReport, Report

_NAME = pattern(r"\s*([A-Za-z]\w*(?:\.\w+)*)\s*")
_CLAUSE = pattern(r"\s*([<>=!~]+)\s*([^,<>=!~]*[^,<>=!~\s])\s*")


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
        name = _NAME.match(text)
        if not name:
            example = "write a probe or a dotted name, and clauses: cudnn>=9.10,<10 or cpu.cores>=8"
            raise BadInput(f"--require {text!r} cannot be read", example)
        probe = name[1].partition(".")[0]
        if probe not in registry.names("probes"):
            raise UnknownName("probe", probe, registry.names("probes"))
        rest = text[name.end() :]
        clauses = [_clause(text, part) for part in rest.split(",")] if rest else []
        return Requirement(text.strip(), probe, name[1], tuple(clauses))


def _clause(text: str, part: str) -> tuple[str, str]:
    form = _CLAUSE.fullmatch(part)
    if form and form[1] in SIGNS:
        return form[1], form[2]
    hint = f"a clause is one of {' '.join(SIGNS[1:])} and a value, such as >=9.10"
    if form and form[1] == "=":
        hint = f"did you mean =={form[2]}?"
    raise BadInput(f"--require {text!r} cannot be read at {part.strip()!r}", hint)


def unmet(report: Report, need: Requirement) -> str:
    """Return why a requirement is not met, one sentence; "" where it is."""
    probe = report.probes[need.probe]
    if probe.presence is None:
        told = [probe.failure] if probe.failure else list(probe.reasons)
        why = f": {told[0].message}" if told else ""
        return f"{need.text}: {need.probe} could not be told{why}"
    if "." not in need.name:
        if why := _below(probe, probe.presence, report.depth):
            return f"{need.text}: {need.probe} is {probe.presence}{why}"
        if not need.clauses:
            return ""
        if not probe.version:
            return (
                f"{need.text}: {need.probe} is {probe.presence}, and its version could not be told"
            )
        return _unfit(need, probe.version, None)
    facts = {fact.name: fact for fact in getattr(registry.load("probes", need.probe), "FACTS", ())}
    try:
        value = dotted.value(report, need.name, tuple(facts))
    except dotted.NoValue:
        why = f": {probe.reasons[0].message}" if probe.reasons else ""
        return f"{need.text}: there is no value here{why}"
    if not need.clauses:
        return "" if value not in (False, "", [], {}) else f"{need.text}: it is {_shown(value)}"
    return _unfit(need, value, facts.get(need.name.partition(".")[2]))


def _below(probe: ProbeReport, presence: Presence, depth: Presence) -> str:
    """Say why a probe is below the rung that was asked for; one that has no higher check is not below."""
    if any(reason.code == "not-mapped" for reason in probe.reasons):
        return ": " + next(r.message for r in probe.reasons if r.code == "not-mapped")
    only_a_fact = presence is Presence.FOUND and not probe.libraries and not probe.reasons
    no_check = any(reason.code == "no-use-check" for reason in probe.reasons)
    if presence.rung >= depth.rung or only_a_fact or no_check:
        return ""
    return f": {probe.reasons[0].message}" if probe.reasons else f", not {depth}"


def _unfit(need: Requirement, value: Any, fact: Fact | None) -> str:
    for sign, wanted in need.clauses:
        if not fits(value, sign, wanted, fact.order if fact else ()):
            return f"{need.text}: {need.name} is {_shown(value)}, needed is {sign} {wanted}"
    return ""


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value else repr(value)
