"""A policy checked against a report. What is unknown is never what does not hold."""

import datetime as dt
import fnmatch
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mlbackends import __version__
from mlbackends.audit.compare import compare, kept, sentence
from mlbackends.audit.policy.assertions import worded
from mlbackends.audit.policy.expectation import Expectation
from mlbackends.audit.policy.rules import Golden, Hazards, Policy, Rule
from mlbackends.audit.policy.selection import PRESENCES, Values
from mlbackends.audit.runner import examine
from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.difference import Change
from mlbackends.model.dotted import is_certain
from mlbackends.model.errors import BadInput
from mlbackends.model.records import Presence, Report

_NEEDED_RULE = {
    Status.FAILED: "failed",
    Status.WAIVED: "failed, which is accepted",
    Status.SKIPPED: "was skipped",
    Status.UNKNOWN: "could not be told",
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
    checks = [check for policy in policies for check in _Audit(policy, values, today).checks()]
    return Outcome(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        kind="audit",
        title=" + ".join(policy.name for policy in policies),
        subject=subject,
        created=report.created,
        checks=tuple(checks),
    )


class _Audit:
    """One policy and one report. done: the checks so far, by the ids of their rules."""

    def __init__(self, policy: Policy, values: Values, today: dt.date) -> None:
        self.policy = policy
        self.values = values
        self.today = today
        self.done: dict[str, Check] = {}
        self.conditions: dict[int, Verdict] = {}

    def checks(self) -> Iterator[Check]:
        """Yield the check of each rule, in the order of the files; then those of hazards."""
        rules = {rule.id: rule for rule in self.policy.rules}
        for name in self.policy.order:
            self.done[name] = self._waived(_check(rules[name], self._verdict(rules[name])))
        yield from (self.done[rule.id] for rule in self.policy.rules)
        if (wanted := self.policy.hazards) is not None:
            found = examine(self.values.report, only=wanted.only, ignored=wanted.ignore)
            for check in found.checks:
                severity = _severity(check, wanted)
                yield self._waived(replace(check, severity=severity, place=wanted.place))

    def _verdict(self, rule: Rule) -> Verdict:
        for other in rule.needs:
            status = self.done[other].status
            if status is not Status.PASSED:
                message = f"not looked at: it needs {other}, which {_NEEDED_RULE[status]}"
                return Verdict(Status.SKIPPED, message)
        for condition in rule.when:
            # Those of a file stand in all of its rules, and are judged once.
            verdict = self.conditions.get(id(condition)) or judged(self.values, condition)
            self.conditions[id(condition)] = verdict
            if verdict.status is Status.UNKNOWN:
                return Verdict(
                    Status.UNKNOWN, f"whether it applies could not be told: {verdict.message}"
                )
            if verdict.status is not Status.PASSED:
                message = f"it applies where {condition.title}; {verdict.message}"
                return Verdict(Status.SKIPPED, message)
        if isinstance(rule.expectation, Golden):
            return _compared(rule.expectation, self.values.report)
        return judged(self.values, rule.expectation, rule.missing)

    def _waived(self, check: Check) -> Check:
        """Return a check whose failure is accepted up to the day on which its waiver ends."""
        waiver = self.policy.waivers.get(check.code)
        if waiver is None or check.status is not Status.FAILED:
            return check
        is_over = self.today > waiver.until
        accepted = f"{'it was ' if is_over else ''}accepted until {waiver.until}: {waiver.reason}"
        status = Status.FAILED if is_over else Status.WAIVED
        return replace(check, status=status, message=f"{check.message} ({accepted})")


def _severity(check: Check, wanted: Hazards) -> Severity:
    if check.code in wanted.severity:
        return wanted.severity[check.code]
    if wanted.fail_on is None:
        return check.severity
    return Severity.ERROR if check.severity.level >= wanted.fail_on.level else Severity.NOTE


def _check(rule: Rule, verdict: Verdict) -> Check:
    own = rule.message.strip().rstrip(".")
    is_failed = verdict.status is Status.FAILED
    return Check(
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
    )


# ---- equals_snapshot ---------------------------------------------------------------------------


def _compared(golden: Golden, report: Report) -> Verdict:
    """Compare the values of a kept report that count. What is unknown here is no difference."""
    try:
        found = kept(compare(golden.report, report), golden.names, golden.but).changes
    except BadInput:  # they have no probe in common
        found = ()
    unknown = [
        name
        for name in golden.report.probes
        if name not in report.probes or not is_certain(report.probes[name])
    ]
    changes = [change for change in found if change.name not in {f"{n}.presence" for n in unknown}]
    if changes:
        message = f"{len(changes)} differ from {golden.file}: {_sentences(changes)}"
        evidence = {one.name: one.after for one in changes[:8] if one.after is not None}
        return Verdict(Status.FAILED, message, evidence)
    depths = (golden.report.depth, report.depth)
    if depths[0].level > depths[1].level:
        why = f"{golden.file} was made with --depth {depths[0]}, this report with {depths[1]}"
        return Verdict(Status.UNKNOWN, f"not compared in full: {why}")
    for name in unknown:
        counts = any(fnmatch.fnmatchcase(name, glob.partition(".")[0]) for glob in golden.names)
        if counts and is_certain(golden.report.probes[name]):
            return Verdict(Status.UNKNOWN, f"not compared in full: {name} could not be told here")
    return Verdict(Status.PASSED)


def _sentences(changes: list[Change]) -> str:
    more = len(changes) - _MOST_CHANGES
    text = "; ".join(map(sentence, changes[:_MOST_CHANGES]))
    return text + (f"; and {more} more" if more > 0 else "")


# ---- one expectation ---------------------------------------------------------------------------


def judged(values: Values, expectation: Expectation, missing: str = "fail") -> Verdict:
    """Check an expectation against a report. missing: what a value means that is not there."""
    selection = expectation.selection
    if expectation.kind == "value" and selection.is_identity and values.report.redacted:
        message = f"{selection.text} names the machine and was replaced: audit with --no-redact"
        return Verdict(Status.UNKNOWN, message)
    return _Judgement(values, expectation, missing).verdict()


class _Judgement:
    """One expectation and a report. unknown: why what is not found may be there all the same, or ""."""

    def __init__(self, values: Values, expectation: Expectation, missing: str) -> None:
        self.expectation = expectation
        self.selection = expectation.selection
        self.assertion = expectation.assertion
        self.missing = missing
        self.report = values.report
        self.found = values.found(self.selection, expectation.field)
        self.unknown = values.view.could_tell(self.selection.probe) or self._uncertain()

    def _uncertain(self) -> str:
        name, probe = self.selection.probe, self.report.probes[self.selection.probe]
        if probe.presence is None and not self.selection.head:
            why = f": {probe.reasons[0].message}" if probe.reasons else ""
            return f"{name} could not be told{why}"
        if not is_certain(probe):
            return f"{name} could not be told in full: {probe.reasons[0].message}"
        is_closed = probe.presence is Presence.FOUND and bool(probe.libraries)
        has_none = self.found.absent or (self.selection.head == "devices" and not probe.devices)
        if is_closed and has_none and self.report.depth is Presence.FOUND:
            what = self.found.missing(f"{name} tells no devices")
            return f"{what}; a report with --depth usable may have it"
        return ""

    def verdict(self) -> Verdict:
        kind = self.expectation.kind
        method = {"present": self._present, "absent": self._absent, "count": self._count}.get(kind)
        if method is None:
            quantifiers = {"each": self._each, "any": self._any, "none": self._none}
            method = quantifiers[self.expectation.quantifier]
        return method()

    def _absent(self) -> Verdict:
        there = self._there()
        if there:
            return _failed(f"{_listed(there)}, and should not be there", there)
        return self._not_checked() if self.unknown else Verdict(Status.PASSED)

    def _present(self) -> Verdict:
        there = self._there()
        if there and (self.expectation.quantifier == "any" or not self.found.absent):
            return Verdict(Status.PASSED, evidence=_evidence(there))
        if self.unknown:
            return self._not_checked()
        probe = self.report.probes[self.selection.probe]
        if probe.presence is Presence.ABSENT:
            why = f": {probe.reasons[0].message}" if probe.reasons else ""
            return _failed(f"{self.selection.probe} is absent{why}")
        return _failed(self.found.missing(f"{self.selection.text} is not there"))

    def _there(self) -> dict[str, Any]:
        """Return the values that are found, without a probe that is absent."""
        is_probe = not self.selection.head
        values = self.found.values.items()
        return {name: each for name, each in values if not (is_probe and each == Presence.ABSENT)}

    def _count(self) -> Verdict:
        if self.unknown:
            return self._not_checked()
        text, found = self.selection.text, self.found
        if self.selection.is_of_many:
            if f"{self.selection.probe}.{self.selection.head}" in found.absent:
                return self._missing()
            number = len(found.values)
        elif found.absent:
            return self._missing()
        else:
            value = next(iter(found.values.values()))
            if not isinstance(value, list | dict | tuple):
                return _failed(f"{text} is {worded(value)}: no list, so it has no count")
            number = len(value)
        if self.assertion.holds(number):
            return Verdict(Status.PASSED, evidence={f"{text} count": number})
        message = f"{text} count is {number}, needed is {self.assertion.needed}"
        return _failed(message, {f"{text} count": number})

    def _each(self) -> Verdict:
        bad, doubts = self._split(fits=False)
        if bad and self._is_beyond(bad):
            return self._not_checked(f"the report was made with --depth {self.report.depth}")
        if bad:
            return _failed(f"{_listed(bad, doubts)}, needed is {self.assertion.needed}", bad)
        if self.found.absent or not self.found.values:
            return self._missing()
        if self.unknown and self.selection.is_of_many:
            return self._not_checked()
        return Verdict(Status.PASSED, evidence=_evidence(self.found.values))

    def _any(self) -> Verdict:
        good, _ = self._split(fits=True)
        values = self.found.values
        if good:
            return Verdict(Status.PASSED, evidence=_evidence(good))
        if self.unknown or not values:
            return self._missing()
        if self._is_beyond(values):
            return self._not_checked(f"the report was made with --depth {self.report.depth}")
        needed = self.assertion.needed
        return _failed(f"{_listed(values)}, and for one of them needed is {needed}", values)

    def _none(self) -> Verdict:
        bad, _ = self._split(fits=True)
        if bad:
            return _failed(f"{_listed(bad)}, and none may be {self.assertion.needed}", bad)
        if self.unknown:
            return self._not_checked()
        return self._missing() if self.found.absent else Verdict(Status.PASSED)

    def _split(self, *, fits: bool) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the values that do fit, or do not; and why some could not even be compared."""
        chosen: dict[str, Any] = {}
        doubts: dict[str, str] = {}
        for name, value in self.found.values.items():
            try:
                holds = self.assertion.holds(value)
            except BadInput as error:
                holds = False
                doubts[name] = str(error)
            if holds is fits:
                chosen[name] = value
        return chosen, doubts

    def _is_beyond(self, bad: dict[str, Any]) -> bool:
        """Tell whether a presence is needed that the report did not try, and all that it tried holds."""
        depth = self.report.depth
        is_presence = self.expectation.field == "presence" and self.selection.order == PRESENCES
        return (
            is_presence
            and depth is not Presence.USABLE
            and all(each == depth for each in bad.values())
        )

    def _missing(self) -> Verdict:
        if self.unknown:
            return self._not_checked()
        message = self.found.missing(f"{self.selection.text} selects nothing")
        if self.report.probes[self.selection.probe].presence is Presence.ABSENT:
            message += f": {self.selection.probe} is absent"
        severity = Severity.WARNING if self.missing == "warn" else None
        return Verdict(_MISSING[self.missing], message, severity=severity)

    def _not_checked(self, why: str = "") -> Verdict:
        return Verdict(Status.UNKNOWN, f"not checked: {why or self.unknown}")


def _failed(message: str, values: dict[str, Any] | None = None) -> Verdict:
    return Verdict(Status.FAILED, message, _evidence(values or {}))


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
    """Return the first few values; of a long list or table its size is enough."""
    return {
        name: value
        if not isinstance(value, list | dict) or len(value) <= _MOST_EVIDENCE
        else f"{len(value)} elements"
        for name, value in list(values.items())[:_MOST_EVIDENCE]
    }
