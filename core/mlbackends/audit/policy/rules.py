"""What a policy comes to once it is read: rules, waivers, and which hazards are looked for."""

import datetime as dt

from msgspec import Struct

from mlbackends.audit.policy.short import Expectation
from mlbackends.audit.policy.snapshot import Golden
from mlbackends.model.audit import Place, Severity


class Rule(Struct, frozen=True):
    """One expectation. golden: of equals_snapshot, instead of an expectation.

    when: conditions of the rule and of its file, all of which must hold. missing: of policy.MISSING.
    needs: ids of rules that must have passed.
    """

    id: str
    place: Place
    expectation: Expectation | Golden
    severity: Severity = Severity.ERROR
    missing: str = "fail"
    when: tuple[Expectation, ...] = ()
    needs: tuple[str, ...] = ()
    message: str = ""
    why: str = ""
    hint: str = ""
    command: str = ""
    documentation: str = ""


class Waiver(Struct, frozen=True):
    """A failure that is accepted until the end of a day."""

    rule: str
    until: dt.date
    reason: str
    place: Place


class Hazards(Struct, frozen=True):
    """Which known hazards are looked for, and how bad each is. place: where that is written.

    fail_on: hazards of this severity or worse are errors and all others notes; None: each keeps its own.
    """

    place: Place
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severity: dict[str, Severity] = {}
    fail_on: Severity | None = None


class Policy(Struct, frozen=True):
    """A whole policy. rules: in the order of the files. order: their ids, each after those it needs."""

    file: str
    name: str
    rules: tuple[Rule, ...]
    order: tuple[str, ...]
    waivers: dict[str, Waiver]
    hazards: Hazards | None = None
