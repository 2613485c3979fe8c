"""Whether one expectation holds in a report. What could not be told is never what does not hold."""

from typing import Any

from msgspec import Struct

from mlbackends.audit.policy.assertions import worded
from mlbackends.audit.policy.names import LADDER, Selection
from mlbackends.audit.policy.short import Expectation
from mlbackends.audit.policy.values import Found, Values
from mlbackends.model.audit import Severity, Status
from mlbackends.model.dotted import is_certain
from mlbackends.model.errors import BadInput
from mlbackends.model.records import Presence

_MOST_SHOWN = 3
_MOST_EVIDENCE = 8
_GIBIBYTE = 1 << 30
_MOST_BYTES = 1 << 64
_MISSING = {
    "fail": Status.FAILED,
    "warn": Status.FAILED,
    "skip": Status.SKIPPED,
    "unknown": Status.UNKNOWN,
}


class Verdict(Struct, frozen=True):
    """How an expectation stands. said: one sentence, "" where it holds. severity: None for the rule's."""

    status: Status
    said: str = ""
    evidence: dict[str, Any] = {}
    severity: Severity | None = None


_HOLDS = Verdict(Status.PASSED)


def judged(values: Values, expectation: Expectation, missing: str = "fail") -> Verdict:
    """Hold an expectation to a report. missing: what a value means that is not there."""
    selection = expectation.selection
    if expectation.kind == "value" and selection.is_identity and values.report.redacted:
        said = f"{selection.text} names the machine and was replaced: audit with --no-redact"
        return Verdict(Status.UNKNOWN, said)
    found = values.found(selection, expectation.field)
    untold = _untold(values, selection) or _unasked(values, selection, found)
    if expectation.kind in ("present", "absent"):
        return _presence(values, expectation, found, untold)
    if expectation.kind == "count":
        return _count(values, expectation, found, untold, missing)
    return _QUANTIFIERS[expectation.quantifier](values, expectation, found, untold, missing)


def _untold(values: Values, selection: Selection) -> str:
    """Return why what is not there may be there all the same, "" where it is not there for sure."""
    why = values.view.could_tell(selection.probe)
    if why:
        return why
    probe = values.report.probes[selection.probe]
    if probe.presence is None and selection.is_probe:
        return f"{selection.probe} could not be told" + (
            f": {probe.reasons[0].message}" if probe.reasons else ""
        )
    if not is_certain(probe):
        return f"{selection.probe} could not be told in full: {probe.reasons[0].message}"
    return ""


def _unasked(values: Values, selection: Selection, found: Found) -> str:
    """Return what is not there since the library that may tell it was not opened, "" where nothing is."""
    probe = values.report.probes[selection.probe]
    is_closed = probe.presence is Presence.FOUND and bool(probe.libraries)
    if not is_closed or values.report.depth is not Presence.FOUND:
        return ""
    if found.absent or (selection.head == "devices" and not probe.devices):
        lacks = found.lacks(f"{selection.probe} tells no devices")
        return f"{lacks}; a report with --depth usable may have it"
    return ""


def _presence(values: Values, expectation: Expectation, found: Found, untold: str) -> Verdict:
    there = found.values
    if expectation.selection.is_probe:
        there = {name: value for name, value in there.items() if value != Presence.ABSENT}
    if expectation.kind == "absent":
        if there:
            said = f"{_listed(there)}, and should not be there"
            return Verdict(Status.FAILED, said, _evidence(there))
        return _unknown(untold) if untold else _HOLDS
    is_enough = there and (expectation.quantifier == "any" or not found.absent)
    if is_enough:
        return Verdict(Status.PASSED, evidence=_evidence(there))
    if untold:
        return _unknown(untold)
    probe = values.report.probes[expectation.selection.probe]
    if probe.presence is Presence.ABSENT:
        why = f": {probe.reasons[0].message}" if probe.reasons else ""
        return Verdict(Status.FAILED, f"{expectation.selection.probe} is absent{why}")
    return Verdict(Status.FAILED, found.lacks(f"{expectation.selection.text} is not there"))


def _count(
    values: Values, expectation: Expectation, found: Found, untold: str, missing: str
) -> Verdict:
    text = expectation.selection.text
    if untold:
        return _unknown(untold)
    if expectation.selection.is_of_many:
        number = len(found.values)
        if f"{expectation.selection.probe}.{expectation.selection.head}" in found.absent:
            return _missing(values, expectation, found, untold, missing)
    elif found.absent:
        return _missing(values, expectation, found, untold, missing)
    else:
        value = next(iter(found.values.values()))
        if not isinstance(value, list | dict | tuple):
            return Verdict(Status.FAILED, f"{text} is {worded(value)}: no list, so it has no count")
        number = len(value)
    if expectation.assertion(number):
        return Verdict(Status.PASSED, evidence={f"{text} count": number})
    said = f"{text} count is {number}, needed is {expectation.assertion.needed}"
    return Verdict(Status.FAILED, said, {f"{text} count": number})


def _each(
    values: Values, expectation: Expectation, found: Found, untold: str, missing: str
) -> Verdict:
    bad, doubts = _split(expectation, found, fits=False)
    if bad and _is_beyond(values, expectation, bad):
        return _unknown(f"the report was made with --depth {values.report.depth}")
    if bad:
        said = f"{_listed(bad, doubts)}, needed is {expectation.assertion.needed}"
        return Verdict(Status.FAILED, said, _evidence(bad))
    if found.absent or not found.values:
        return _missing(values, expectation, found, untold, missing)
    if untold and expectation.selection.is_of_many:
        return _unknown(untold)
    return Verdict(Status.PASSED, evidence=_evidence(found.values))


def _any(
    values: Values, expectation: Expectation, found: Found, untold: str, missing: str
) -> Verdict:
    good, _ = _split(expectation, found, fits=True)
    if good:
        return Verdict(Status.PASSED, evidence=_evidence(good))
    if untold or not found.values:
        return _missing(values, expectation, found, untold, missing)
    if _is_beyond(values, expectation, found.values):
        return _unknown(f"the report was made with --depth {values.report.depth}")
    said = f"{_listed(found.values)}, and for one of them needed is {expectation.assertion.needed}"
    return Verdict(Status.FAILED, said, _evidence(found.values))


def _none(
    values: Values, expectation: Expectation, found: Found, untold: str, missing: str
) -> Verdict:
    bad, _ = _split(expectation, found, fits=True)
    if bad:
        said = f"{_listed(bad)}, and none may be {expectation.assertion.needed}"
        return Verdict(Status.FAILED, said, _evidence(bad))
    if untold:
        return _unknown(untold)
    if found.absent:
        return _missing(values, expectation, found, untold, missing)
    return _HOLDS


_QUANTIFIERS = {"each": _each, "any": _any, "none": _none}


def _is_beyond(values: Values, expectation: Expectation, bad: dict[str, Any]) -> bool:
    """Tell whether a rung was needed that the report did not try, and all that it tried was reached."""
    depth = values.report.depth
    is_rung = expectation.field == "presence" and expectation.selection.order == LADDER
    return is_rung and depth is not Presence.USABLE and all(each == depth for each in bad.values())


def _split(
    expectation: Expectation, found: Found, *, fits: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values that do fit, or do not; and why some could not even be compared."""
    chosen: dict[str, Any] = {}
    doubts: dict[str, str] = {}
    for name, value in found.values.items():
        try:
            holds = expectation.assertion(value)
        except BadInput as error:
            holds = False
            doubts[name] = str(error)
        if holds is fits:
            chosen[name] = value
    return chosen, doubts


def _missing(
    values: Values, expectation: Expectation, found: Found, untold: str, missing: str
) -> Verdict:
    if untold:
        return _unknown(untold)
    selection = expectation.selection
    probe = values.report.probes[selection.probe]
    said = found.lacks(f"{selection.text} selects nothing")
    if probe.presence is Presence.ABSENT:
        said += f": {selection.probe} is absent"
    severity = Severity.WARNING if missing == "warn" else None
    return Verdict(_MISSING[missing], said, severity=severity)


def _unknown(untold: str) -> Verdict:
    return Verdict(Status.UNKNOWN, f"not checked: {untold}")


def _listed(values: dict[str, Any], doubts: dict[str, str] | None = None) -> str:
    """Return "NAME is VALUE" for the first few values, and how many there are besides."""
    shown = [
        f"{name} is {_amount(name, value)}"
        + (f" ({doubts[name]})" if doubts and name in doubts else "")
        for name, value in list(values.items())[:_MOST_SHOWN]
    ]
    more = len(values) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _amount(name: str, value: Any) -> str:
    """Return a value as a message shows it; many bytes as gibibytes too."""
    is_size = name.endswith("_bytes") and isinstance(value, int) and value >= _GIBIBYTE
    if not is_size or value > _MOST_BYTES:
        return worded(value)
    return f"{worded(value)} ({value / _GIBIBYTE:.4g} GiB)"


def _evidence(values: dict[str, Any]) -> dict[str, Any]:
    """Return the first few values; of a long list or table its size says enough."""
    return {
        name: value
        if not isinstance(value, list | dict) or len(value) <= _MOST_EVIDENCE
        else f"{len(value)} elements"
        for name, value in list(values.items())[:_MOST_EVIDENCE]
    }
