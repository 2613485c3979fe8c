"""A difference as checks, so that what is written for CI reads it as it reads a policy."""

import msgspec

from mlbackends.model import audit
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends.model.difference import Change, Difference, Kind
from mlbackends.model.records import FactValue

_LONGEST = 300
SAME = "same"


def outcome_of(difference: Difference) -> Outcome:
    """Return one failed check for each change; where there is none, one that has passed."""
    subject = f"{difference.after.name} against {difference.before.name}"
    checks = tuple(_check(change) for change in difference.changes)
    return Outcome(
        schema=audit.SCHEMA,
        tool=difference.tool,
        kind="diff",
        title="Differences",
        subject=subject,
        created=difference.after.created,
        checks=checks or (Check(SAME, "The two do not differ"),),
    )


def _check(change: Change) -> Check:
    evidence: dict[str, FactValue] = {}
    if change.before is not None:
        evidence["before"] = change.before
    if change.after is not None:
        evidence["after"] = change.after
    return Check(
        code=change.name,
        title=f"{change.name} is the same",
        severity=Severity.ERROR,
        status=Status.FAILED,
        message=sentence(change),
        evidence=evidence,
    )


def sentence(change: Change) -> str:
    """Return what a change is, on one line."""
    if change.kind is Kind.ADDED:
        return f"{change.name} was added: {shown(change.after)}"
    if change.kind is Kind.REMOVED:
        return f"{change.name} was removed: {shown(change.before)}"
    return f"{change.name} was {shown(change.before)} and is {shown(change.after)}"


def shown(value: FactValue | None) -> str:
    """Return a value for people: text as it is, everything else as JSON, cut where it is long."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
