"""What a user requires of a report: `cudnn`, `cudnn>=9.10`, `cpu.cores>=8`, `cpu.capability==AVX512`."""

import math
from typing import Any

from msgspec import Struct

from mlbackends.model import dotted, registry
from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.patterns import pattern
from mlbackends.model.records import Fact, Presence, ProbeReport, Report

_FORM = pattern(r"(?P<name>[A-Za-z]\w*(?:\.\w+)*)\s*(?P<spec>(?:[<>=!~]=?=?\s*[^,<>=!~]+,?\s*)*)$")
_CLAUSE = pattern(r"(===|==|~=|!=|>=|<=|>|<)\s*([^,]+)")


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
        form = _FORM.match(text.strip())
        if not form:
            example = "write a probe or a dotted name, and clauses: cudnn>=9.10,<10 or cpu.cores>=8"
            raise BadInput(f"--require {text!r} cannot be read", example)
        name, spec = form["name"], form["spec"]
        probe = name.partition(".")[0]
        if probe not in registry.names("probes"):
            raise UnknownName("probe", probe, registry.names("probes"))
        clauses = tuple((sign, wanted.strip()) for sign, wanted in _CLAUSE.findall(spec))
        return Requirement(text.strip(), probe, name, clauses)


def unmet(report: Report, need: Requirement) -> str:
    """Return why a requirement is not met, one sentence; "" where it is."""
    probe = report.probes[need.probe]
    if probe.presence is None:
        why = probe.failure.message if probe.failure else ""
        return f"{need.text}: {need.probe} could not be told: {why}"
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
        return "" if value not in (False, None, [], {}) else f"{need.text}: it is {_shown(value)}"
    return _unfit(need, value, facts.get(need.name.partition(".")[2]))


def _below(probe: ProbeReport, presence: Presence, depth: Presence) -> str:
    """Say why a probe is below the rung that was asked for; one that has no higher check is not below."""
    only_a_fact = presence is Presence.FOUND and not probe.libraries and not probe.reasons
    no_check = any(reason.code == "no-use-check" for reason in probe.reasons)
    if presence.rung >= depth.rung or only_a_fact or no_check:
        return ""
    return f": {probe.reasons[0].message}" if probe.reasons else f", not {depth}"


def _unfit(need: Requirement, value: Any, fact: Fact | None) -> str:
    for sign, wanted in need.clauses:
        if not _fits(value, sign, wanted, fact.order if fact else ()):
            return f"{need.text}: {need.name} is {_shown(value)}, needed is {sign} {wanted}"
    return ""


def _fits(value: Any, sign: str, wanted: str, order: tuple[str, ...]) -> bool:
    if isinstance(value, bool):
        return (str(value).lower() == wanted.lower()) is (sign in ("==", "==="))
    if isinstance(value, list | dict):
        value = len(value)
    if isinstance(value, int | float):
        try:
            return _compare(value, float(wanted), sign)
        except ValueError:
            raise BadInput(f"{wanted!r} is not a number, and the value is {value}") from None
    if wanted in order:
        # What stands on another ladder (SVE256 beside AVX2) is neither above nor below.
        here = order.index(value) if value in order else math.nan
        return _compare(here, order.index(wanted), sign)
    return _version_fits(str(value), sign, wanted)


def _compare(left: float, right: float, sign: str) -> bool:
    return {
        "==": left == right,
        "===": left == right,
        "!=": left != right,
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
        "~=": left >= right,
    }[sign]


def _version_fits(value: str, sign: str, wanted: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(f"{sign}{wanted}").contains(Version(value), prereleases=True)
    except (InvalidVersion, InvalidSpecifier):
        if sign in ("==", "==="):
            return value == wanted
        if sign == "!=":
            return value != wanted
        raise BadInput(
            f"{value!r} and {wanted!r} are not both versions, so {sign} means nothing"
        ) from None


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
