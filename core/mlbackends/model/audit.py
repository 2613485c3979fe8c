"""The result of `doctor`, `audit`, `diff` and `sdpa check` as one kind of record: checks and their status.

Whatever prints for people or for CI reads an Outcome and nothing else, so that each format exists once.
"""

from enum import StrEnum

from msgspec import Struct, field

from mlbackends.model.records import FactValue

SCHEMA = "backends.outcome/1"


class Severity(StrEnum):
    """How bad a failed check is; the order of the members is that of the levels."""

    #: Worth knowing; nothing is wrong.
    NOTE = "note"
    #: It works, but slower, with fewer features, or only by chance.
    WARNING = "warning"
    #: It does not work, or gives wrong results.
    ERROR = "error"

    @property
    def level(self) -> int:
        """The severity as a number: 0 for a note to 2 for an error."""
        return list(Severity).index(self)


class Problem(StrEnum):
    """Who can fix a failed check."""

    #: Whoever runs the machine: hardware, driver, kernel, a service or limit of the host.
    NODE = "node"
    #: Whoever runs the job: packages, variables, its container.
    USER = "user"


class Status(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    #: It does not apply to this machine.
    SKIPPED = "skipped"
    #: It failed, and the failure is accepted: by a policy, or by a file of expected differences.
    WAIVED = "waived"
    #: It could not be determined: what it needs could not be read. Never the same as passed.
    UNKNOWN = "unknown"


class Place(Struct, frozen=True, omit_defaults=True):
    """Where a check is declared. line: from 1; 0 where a file has no lines."""

    file: str
    line: int = 0


class Check(Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at, and how it ended.

    code: stable; that of a hazard, the id of a rule, the dotted name of a difference, or a problem's
    backend. Several failed checks may share one: a hazard that is there twice.
    title: what is looked at, on one line. message: what was seen and what was needed, one sentence.
    why: why it matters. hint: what to do. command: what to type for that, "" where no command does it.
    evidence: what was seen, by dotted name. documentation: an address, or "". instance: which of the
    checks with this code it is, in words that stay, such as the problem that a backend computed.
    problem: who can fix it; None if that is not classified.
    """

    code: str
    title: str
    # Factories, since what equals a plain default is left out of the JSON; these never are.
    severity: Severity = field(default_factory=lambda: Severity.ERROR)
    status: Status = field(default_factory=lambda: Status.PASSED)
    message: str = ""
    why: str = ""
    hint: str = ""
    command: str = ""
    evidence: dict[str, FactValue] = {}
    place: Place | None = None
    documentation: str = ""
    instance: str = ""
    problem: Problem | None = None


class Outcome(Struct, frozen=True, omit_defaults=True):
    """Every check of one run, in an order that does not depend on chance.

    kind: the command: doctor, audit, diff, conform or sdpa-check. title: for people. subject: the machine or
    file that was looked at. created: when that was recorded, not when it was checked. fingerprints: of each
    probe's report, by its name, for formats that have them.
    """

    schema: str
    tool: str
    kind: str
    title: str
    subject: str
    created: str
    checks: tuple[Check, ...]
    fingerprints: dict[str, str] = {}

    def failed(self, least: Severity = Severity.NOTE) -> tuple[Check, ...]:
        """Return the failed checks of a severity or worse, the worst first."""
        found = [
            check
            for check in self.checks
            if check.status is Status.FAILED and check.severity.level >= least.level
        ]
        return tuple(sorted(found, key=lambda check: -check.severity.level))

    def with_status(self, status: Status) -> tuple[Check, ...]:
        """Return the checks that ended so."""
        return tuple(check for check in self.checks if check.status is status)
