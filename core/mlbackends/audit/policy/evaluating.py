"""Holding a policy to a report: every rule, every waiver, and the hazards that it asks for."""

import datetime as dt
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from mlbackends import __version__
from mlbackends.audit.policy import snapshot
from mlbackends.audit.policy.judging import Verdict, judged
from mlbackends.audit.policy.rules import Hazards, Policy, Rule
from mlbackends.audit.policy.short import Expectation
from mlbackends.audit.policy.snapshot import Golden
from mlbackends.audit.policy.values import Values
from mlbackends.audit.runner import examine
from mlbackends.model.audit import SCHEMA, Check, Outcome, Severity, Status
from mlbackends.model.records import Report

_ENDED = {
    Status.FAILED: "failed",
    Status.WAIVED: "failed, which is accepted",
    Status.SKIPPED: "was skipped",
    Status.UNKNOWN: "could not be told",
}


def audit(policies: Sequence[Policy], report: Report, today: dt.date, subject: str = "") -> Outcome:
    """Return how each rule of each policy stands. today: for waivers, which end on a day."""
    values = Values(report)
    return Outcome(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        kind="audit",
        title=" + ".join(policy.name for policy in policies),
        subject=subject,
        created=report.created,
        checks=tuple(
            check for policy in policies for check in _Audit(policy, values, today).checks()
        ),
    )


class _Audit:
    """One policy and one report. ended: how each rule ended that was looked at already."""

    def __init__(self, policy: Policy, values: Values, today: dt.date) -> None:
        self.policy = policy
        self.values = values
        self.today = today
        self.ended: dict[str, Check] = {}
        self.conditions: dict[int, Verdict] = {}

    def checks(self) -> Iterator[Check]:
        """Yield the check of each rule, in the order of the files; then those of hazards."""
        rules = {rule.id: rule for rule in self.policy.rules}
        for name in self.policy.order:
            self.ended[name] = self._waived(_check(rules[name], self._verdict(rules[name])))
        yield from (self.ended[rule.id] for rule in self.policy.rules)
        if self.policy.hazards is not None:
            yield from self._hazards(self.policy.hazards)

    def _verdict(self, rule: Rule) -> Verdict:
        for other in rule.needs:
            status = self.ended[other].status
            if status is not Status.PASSED:
                said = f"not looked at: it needs {other}, which {_ENDED[status]}"
                return Verdict(Status.SKIPPED, said)
        for condition in rule.when:
            verdict = self._condition(condition)
            if verdict.status is Status.UNKNOWN:
                said = f"whether it applies could not be told: {verdict.said}"
                return Verdict(Status.UNKNOWN, said)
            if verdict.status is not Status.PASSED:
                said = f"it applies where {condition.title}; {verdict.said}"
                return Verdict(Status.SKIPPED, said)
        if isinstance(rule.expectation, Golden):
            return self._golden(rule.expectation)
        return judged(self.values, rule.expectation, rule.missing)

    def _condition(self, condition: Expectation) -> Verdict:
        """Judge a condition once: that of a file stands in all of its rules."""
        key = id(condition)
        if key not in self.conditions:
            self.conditions[key] = judged(self.values, condition)
        return self.conditions[key]

    def _golden(self, golden: Golden) -> Verdict:
        report = self.values.report
        found = snapshot.differences(golden, report)
        if found:
            said = f"{len(found)} differ from {golden.file}: {snapshot.listed(found)}"
            evidence = {each.name: each.after for each in found[:8] if each.after is not None}
            return Verdict(Status.FAILED, said, evidence)
        if why := snapshot.untold(golden, report):
            return Verdict(Status.UNKNOWN, f"not compared in full: {why}")
        return Verdict(Status.PASSED)

    def _waived(self, check: Check) -> Check:
        """Accept a failure that somebody has accepted, up to the day on which that ends."""
        waiver = self.policy.waivers.get(check.code)
        if waiver is None or check.status is not Status.FAILED:
            return check
        if self.today <= waiver.until:
            said = f"{check.message} (accepted until {waiver.until}: {waiver.reason})"
            return replace(check, status=Status.WAIVED, message=said)
        said = f"{check.message} (it was accepted until {waiver.until}: {waiver.reason})"
        return replace(check, message=said)

    def _hazards(self, wanted: Hazards) -> Iterator[Check]:
        found = examine(self.values.report, only=wanted.only, ignored=wanted.ignore)
        for check in found.checks:
            severity = _severity(check, wanted)
            yield self._waived(replace(check, severity=severity, place=wanted.place))


def _severity(check: Check, wanted: Hazards) -> Severity:
    if check.code in wanted.severity:
        return wanted.severity[check.code]
    if wanted.fail_on is None:
        return check.severity
    return Severity.ERROR if check.severity.rung >= wanted.fail_on.rung else Severity.NOTE


def _check(rule: Rule, verdict: Verdict) -> Check:
    own = rule.message.strip().rstrip(".")
    is_failed = verdict.status is Status.FAILED
    return Check(
        code=rule.id,
        title=rule.expectation.title,
        severity=verdict.severity or rule.severity,
        status=verdict.status,
        message=f"{own}: {verdict.said}" if own and is_failed else verdict.said,
        why=rule.why,
        hint=rule.hint,
        command=rule.command,
        evidence=verdict.evidence,
        place=rule.place,
        documentation=rule.documentation,
    )
