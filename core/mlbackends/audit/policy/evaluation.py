"""Check a report against a policy. Unknown never counts as failed."""

import datetime as dt
import fnmatch
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.audit.compare import compare, narrowed, sentence
from mlbackends.audit.policy.assertions import worded
from mlbackends.audit.policy.expectation import Expectation
from mlbackends.audit.policy.rules import Golden, Policy, Rule
from mlbackends.audit.policy.selection import PRESENCES, Found, Selection, Values
from mlbackends.audit.runner import examine
from mlbackends.base.comparison import in_unit_of
from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import pattern
from mlbackends.base.version import __version__
from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.records import Presence, Report
from mlbackends.survey.dotted import is_certain

_NEEDED_RULE = {
    Status.FAILED: "failed",
    Status.WAIVED: "failed, which is accepted",
    Status.SKIPPED: "was skipped",
    Status.UNKNOWN: "could not be determined",
}
_MISSING = {
    "fail": Status.FAILED,
    "warn": Status.FAILED,
    "skip": Status.SKIPPED,
    "unknown": Status.UNKNOWN,
}
_MOST_CHANGES = 5
_MOST_SHOWN = 3
_MOST_EVIDENCE = 8
_QUANTITY = pattern(r"[0-9][0-9.]*\s*[A-Za-z]+$")
_GIBIBYTE = 1 << 30
_MOST_BYTES = 1 << 64


class Verdict(Struct, frozen=True):
    """The result of an expectation. message: "" where it holds. severity: None for the rule's."""

    status: Status
    message: str = ""
    evidence: dict[str, Any] = {}
    severity: Severity | None = None


def audit(policies: Sequence[Policy], report: Report, today: dt.date, subject: str = "") -> Outcome:
    """Return the result of each rule of each policy. today: for waivers, which end on a day."""
    values = Values(report)
    return Outcome(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        kind="audit",
        title=" + ".join(policy.name for policy in policies),
        subject=subject,
        created=report.created,
        checks=tuple(check for policy in policies for check in _checks(policy, values, today)),
    )


def _checks(policy: Policy, values: Values, today: dt.date) -> Iterator[Check]:
    """Yield the check of each rule, in the order of the files; then those of hazards."""

    def waived(check: Check) -> Check:
        """Return a check whose failure is accepted up to the day on which its waiver ends."""
        waiver = policy.waivers.get(check.code)
        return waiver.applied(check, today) if waiver else check

    rules = {rule.id: rule for rule in policy.rules}
    done: dict[str, Check] = {}
    conditions: dict[int, Verdict] = {}
    for name in policy.order:
        rule = rules[name]
        verdict = _rule_verdict(rule, values, done, conditions)
        own = rule.message.strip().rstrip(".")
        is_failed = verdict.status is Status.FAILED
        done[name] = waived(
            Check(
                code=rule.id,
                title=rule.expectation.title,
                severity=verdict.severity or rule.severity,
                status=verdict.status,
                message=f"{own}: {verdict.message}" if own and is_failed else verdict.message,
                why=rule.why,
                hint=rule.hint,
                command=rule.command,
                evidence=verdict.evidence,
                place=rule.place,
                documentation=rule.documentation,
                problem=rule.problem,
            )
        )
    yield from (done[name] for name in rules)
    if (selection := policy.hazards) is not None:
        for check in examine(values.report, only=selection.only, ignored=selection.ignore).checks:
            severity = selection.severity.get(check.code, check.severity)
            if selection.fail_on is not None and check.code not in selection.severity:
                is_error = severity.level >= selection.fail_on.level
                severity = Severity.ERROR if is_error else Severity.NOTE
            yield waived(replace(check, severity=severity, place=selection.place))


def _rule_verdict(
    rule: Rule, values: Values, done: dict[str, Check], conditions: dict[int, Verdict]
) -> Verdict:
    """Check one rule. done: the checks of those that it may need. conditions: verdicts so far, by id."""
    for other in rule.needs:
        status = done[other].status
        if status is not Status.PASSED:
            message = f"not checked: it needs {other}, which {_NEEDED_RULE[status]}"
            return Verdict(Status.SKIPPED, message)
    for condition in rule.when:
        # Conditions of a file are in all of its rules, and are checked once.
        verdict = conditions.get(id(condition)) or judged(values, condition)
        conditions[id(condition)] = verdict
        if verdict.status is Status.UNKNOWN:
            message = f"whether it applies could not be determined: {verdict.message}"
            return Verdict(Status.UNKNOWN, message)
        if verdict.status is not Status.PASSED:
            message = f"it applies where {condition.title}; {verdict.message}"
            return Verdict(Status.SKIPPED, message)
    if isinstance(rule.expectation, Golden):
        return _compared(rule.expectation, values.report)
    return judged(values, rule.expectation, rule.missing)


def _compared(golden: Golden, report: Report) -> Verdict:
    """Compare the selected values of a kept report. An unknown value is not a difference."""
    try:
        found = narrowed(compare(golden.report, report), golden.names, golden.but).changes
    except BadInput:  # they have no probe in common
        found = ()
    unknown = [
        name
        for name in golden.report.probes
        if name not in report.probes or not is_certain(report.probes[name])
    ]
    changes = [change for change in found if change.name not in {f"{n}.presence" for n in unknown}]
    if changes:
        message = "; ".join(map(sentence, changes[:_MOST_CHANGES]))
        if len(changes) > _MOST_CHANGES:
            message += f"; and {len(changes) - _MOST_CHANGES} more"
        message = f"{len(changes)} differ from {golden.file}: {message}"
        evidence = {change.name: change.after for change in changes[:8] if change.after is not None}
        return Verdict(Status.FAILED, message, evidence)
    if golden.report.depth.level > report.depth.level:
        depths = f"with --depth {golden.report.depth}, this report with {report.depth}"
        why = f"{golden.file} was made {depths}"
        return Verdict(Status.UNKNOWN, f"not compared in full: {why}")
    for name in unknown:
        counts = any(fnmatch.fnmatchcase(name, glob.partition(".")[0]) for glob in golden.names)
        if counts and is_certain(golden.report.probes[name]):
            return Verdict(Status.UNKNOWN, f"not compared in full: {name} could not be determined here")
    return Verdict(Status.PASSED)


def judged(values: Values, expectation: Expectation, missing: str = "fail") -> Verdict:
    """Check an expectation against a report. missing: the result if the value is missing."""
    selection, report = expectation.selection, values.report
    if expectation.kind == "value" and selection.is_identity and report.redacted:
        message = f"{selection.text} names the machine and was replaced: audit with --no-redact"
        return Verdict(Status.UNKNOWN, message)
    found = values.found(selection, expectation.field)
    unknown = values.view.why_uncertain(selection.probe) or _uncertain(selection, found, report)

    def lacking() -> Verdict:
        """Return the verdict on a missing value."""
        if unknown:
            return Verdict(Status.UNKNOWN, f"not checked: {unknown}")
        message = found.missing(f"{selection.text} selects nothing")
        if report.probes[selection.probe].presence is Presence.ABSENT:
            message += f": {selection.probe} is absent"
        severity = Severity.WARNING if missing == "warn" else None
        return Verdict(_MISSING[missing], message, severity=severity)

    if expectation.kind in ("present", "absent"):
        return _presence_verdict(expectation, found, unknown, report)
    if expectation.kind == "count":
        return _count_verdict(expectation, found, unknown, lacking)
    return _value_verdict(expectation, found, unknown, report.depth, lacking)


def _uncertain(selection: Selection, found: Found, report: Report) -> str:
    """Return why a value that was not found may exist nevertheless, or ""."""
    name, probe = selection.probe, report.probes[selection.probe]
    if probe.presence is None and not selection.head:
        why = f": {probe.reasons[0].message}" if probe.reasons else ""
        return f"{name} could not be determined{why}"
    if not is_certain(probe):
        return f"{name} could not be determined in full: {probe.reasons[0].message}"
    is_closed = probe.presence is Presence.FOUND and bool(probe.libraries)
    has_none = found.absent or (selection.head == "devices" and not probe.devices)
    if is_closed and has_none and report.depth is Presence.FOUND:
        missing = found.missing(f"{name} reports no devices")
        return f"{missing}; a report with --depth usable may have it"
    return ""


def _presence_verdict(expectation: Expectation, found: Found, unknown: str, report: Report) -> Verdict:
    selection = expectation.selection
    is_probe = not selection.head
    present = {
        name: value for name, value in found.values.items() if not (is_probe and value == Presence.ABSENT)
    }
    if expectation.kind == "absent" and present:
        return _failed(f"{_listed(present)}, and should not be there", present)
    if present and (expectation.quantifier == "any" or not found.absent):
        return Verdict(Status.PASSED, evidence=_evidence(present))
    if unknown:
        return Verdict(Status.UNKNOWN, f"not checked: {unknown}")
    if expectation.kind == "absent":
        return Verdict(Status.PASSED)
    probe = report.probes[selection.probe]
    if probe.presence is Presence.ABSENT:
        why = f": {probe.reasons[0].message}" if probe.reasons else ""
        return _failed(f"{selection.probe} is absent{why}")
    return _failed(found.missing(f"{selection.text} is not there"))


def _count_verdict(
    expectation: Expectation, found: Found, unknown: str, lacking: Callable[[], Verdict]
) -> Verdict:
    selection = expectation.selection
    head = f"{selection.probe}.{selection.head}"
    if unknown or (head in found.absent if selection.is_of_many else found.absent):
        return lacking()
    number = len(found.values)
    if not selection.is_of_many:
        value = next(iter(found.values.values()))
        if not isinstance(value, list | dict | tuple):
            return _failed(f"{selection.text} is {worded(value)}: not a list, so it has no count")
        number = len(value)
    evidence = {f"{selection.text} count": number}
    if expectation.assertion.holds(number):
        return Verdict(Status.PASSED, evidence=evidence)
    needed = expectation.assertion.needed
    return _failed(f"{selection.text} count is {number}, required: {needed}", evidence)


def _value_verdict(
    expectation: Expectation,
    found: Found,
    unknown: str,
    depth: Presence,
    lacking: Callable[[], Verdict],
) -> Verdict:
    needed, quantifier = expectation.assertion.needed, expectation.quantifier
    good: dict[str, Any] = {}
    bad: dict[str, Any] = {}
    doubts: dict[str, str] = {}  # why some could not even be compared
    for name, value in found.values.items():
        try:
            holds = expectation.assertion.holds(value)
        except BadInput as error:
            holds = False
            doubts[name] = str(error)
        (good if holds else bad)[name] = value
    # A presence level is needed that the report did not try, and all levels that it tried hold.
    is_presence = expectation.field == "presence" and expectation.selection.order == PRESENCES
    is_tried = bool(bad) and all(value == depth for value in bad.values())
    is_beyond = is_presence and depth is not Presence.USABLE and is_tried
    if is_beyond and (quantifier == "each" or (quantifier == "any" and not good and not unknown)):
        return Verdict(Status.UNKNOWN, f"not checked: the report was made with --depth {depth}")
    if quantifier == "none":
        if good:
            return _failed(f"{_listed(good, needed)}, and none may be {needed}", good)
        return lacking() if unknown or found.absent else Verdict(Status.PASSED)
    if quantifier == "any":
        if good:
            return Verdict(Status.PASSED, evidence=_evidence(good))
        if unknown or not bad:
            return lacking()
        return _failed(f"{_listed(bad, needed)}, and one of them must be {needed}", bad)
    if bad:
        return _failed(f"{_listed(bad, needed, doubts)}, required: {needed}", bad)
    if found.absent or not good or (unknown and expectation.selection.is_of_many):
        return lacking()
    return Verdict(Status.PASSED, evidence=_evidence(good))


def _failed(message: str, values: dict[str, Any] | None = None) -> Verdict:
    return Verdict(Status.FAILED, message, _evidence(values or {}))


def _listed(values: dict[str, Any], needed: str = "", doubts: dict[str, str] | None = None) -> str:
    """Return "NAME is VALUE" for the first few values, and how many there are besides.

    Sizes are also in the unit that `needed` has, else in GiB.
    """
    found = _QUANTITY.search(needed)
    requested = found[0] if found else ""
    shown = []
    for name, value in list(values.items())[:_MOST_SHOWN]:
        text = f"{name} is {worded(value)}"
        is_size = name.endswith("_bytes") and isinstance(value, int)
        if is_size and _GIBIBYTE <= value <= _MOST_BYTES:
            text += f" ({in_unit_of(value, requested) or f'{value / _GIBIBYTE:.4g} GiB'})"
        shown.append(text + (f" ({doubts[name]})" if doubts and name in doubts else ""))
    more = len(values) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _evidence(values: dict[str, Any]) -> dict[str, Any]:
    """Return the first few values; a long list or table is replaced by its size."""
    return {
        name: value
        if not isinstance(value, list | dict) or len(value) <= _MOST_EVIDENCE
        else f"{len(value)} elements"
        for name, value in list(values.items())[:_MOST_EVIDENCE]
    }
