"""Many machines: the report of one node, and what is equal and what differs between all nodes."""

from enum import StrEnum

from msgspec import UNSET, Raw, Struct, UnsetType, field

from mlbackends.model.audit import Check, Place
from mlbackends.model.records import FactValue

ENVELOPE_SCHEMA = "backends.envelope/1"
SCHEMA = "backends.fleet/1"
FACTS_SCHEMA = "backends.fleet-facts/1"
DIFFERENCE_SCHEMA = "backends.fleet-difference/1"

#: In the title of a kind what its records are, as "sdpa-check"; nodes with reports have it not.
RECORD = "record"
#: In the title of a kind the group of its nodes, where they were grouped; null for those in none.
GROUP = "group"
#: What nodes are compared with where there is no baseline.
MAJORITY = "the majority"


class Status(StrEnum):
    """What became of the report of one node."""

    OK = "ok"
    #: It printed something other than a report, or a report that cannot be used.
    ERROR = "error"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    #: A part of its report was lost or changed in transit.
    GARBLED = "garbled"
    #: It was expected and did not report.
    MISSING = "missing"


class Envelope(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one node reported. report: a record as JSON, mostly that of `backends info`; only with ok.

    node: "" where nothing names it. error: one sentence; with ok why the report is suspect, mostly "".
    exit_code: of the command that made the report; null if it is unknown.
    """

    schema: str = field(default_factory=lambda: ENVELOPE_SCHEMA)
    node: str = ""
    status: Status = field(default_factory=lambda: Status.OK)
    error: str = ""
    exit_code: int | None = None
    report: Raw | UnsetType = UNSET


class Silent(Struct, frozen=True):
    """Nodes without a report that can be used, for one reason."""

    status: Status
    error: str
    nodes: tuple[str, ...]


class Difference(Struct, frozen=True):
    """One fact that some nodes have otherwise: their value, and the usual one; null where there is none.

    Of a metric that some of them measured more than 1 % apart, the least and the greatest value.
    """

    name: str
    value: FactValue | None
    usual: FactValue | None


class Deviation(Struct, frozen=True):
    """Nodes of one kind that differ from the others in the same facts."""

    nodes: tuple[str, ...]
    differences: tuple[Difference, ...]


class Split(Struct, frozen=True):
    """Facts of which no value is that of most nodes, and which divide the nodes alike.

    groups: nodes with the same values, the smallest first. facts: by name, the value of each group.
    """

    groups: tuple[tuple[str, ...], ...]
    facts: dict[str, tuple[FactValue | None, ...]]


class ExpectationState(StrEnum):
    """What became of an entry of the file of --expected."""

    USED = "used"
    #: Its last day has passed, and what it accepted counts again.
    EXPIRED = "expired"
    #: There is nothing that it accepts.
    UNUSED = "unused"


class Expectation(Struct, frozen=True):
    """One entry of the file of --expected: what it accepts, until when and why.

    what: patterns of hazards, rules and facts. findings, nodes: the names of what it covers, and where.
    until: its last day; "" if it has no end.
    """

    state: ExpectationState
    what: dict[str, tuple[str, ...]]
    findings: tuple[str, ...]
    nodes: tuple[str, ...]
    until: str
    reason: str
    place: Place


class Kind(Struct, frozen=True):
    """Nodes that are compared with each other.

    title: what they have in common, by dotted name; `record` is present for records other than reports, and
    `group` with --by-group.
    nodes: how many. alike: how many agree with the majority in all facts that have one. deviations: those of
    `others` first, then the smallest. not_compared: facts with so many values that many nodes are
    presumed to have each its own. splits: facts without a majority. others: nodes of other kinds, which have
    few nodes, and of which this kind is the nearest. expected: deviations that are accepted.
    compared_with: as in the fleet, or the group's baseline.
    """

    title: dict[str, FactValue | None]
    nodes: int
    alike: int
    deviations: tuple[Deviation, ...] = ()
    not_compared: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ()
    others: tuple[str, ...] = ()
    expected: tuple[Deviation, ...] = ()
    compared_with: str = MAJORITY

    @property
    def drifts(self) -> bool:
        """Whether a node differs from what it is compared with."""
        return bool(self.deviations or self.splits)


class Configuration(Struct, frozen=True):
    """Nodes whose canonical forms are the same. sections: the fingerprint of each probe's."""

    fingerprint: str
    nodes: tuple[str, ...]
    sections: dict[str, str]


class Hazard(Struct, frozen=True):
    """A failed check, and the nodes on which it failed."""

    check: Check
    nodes: tuple[str, ...]


class Outlier(Struct, frozen=True):
    """A figure of one node far from those of the others of its kind: their median, and how many have it."""

    node: str
    name: str
    value: float
    median: float
    nodes: int


class Fleet(Struct, frozen=True):
    """A whole fleet. Two fleets can be merged by the fields from `expected` on; the others follow from these.

    compared_with: "the majority", or the name of a baseline. groups: with --by-group the nodes of each group,
    with and without a report; "" for those in none. expected: the names of nodes, or how
    many; null if that was not given. repeated: how often a node reported beyond its first report.
    sections: each canonical form, by probe and fingerprint. ranges: the least and the greatest
    value behind each rounded value of a metric. varying: facts with more values than are counted.
    garbled: pieces and lines that belong to no node. flagged: by node, why its report is suspect although it
    is whole, such as the exit code of the command that printed it. unchecked: how many reports were put
    together from pieces that have no checksum. hazards: of `fleet doctor`; an accepted one is waived.
    figures: of `fleet run -- COMMAND`, by name and node; outliers: those that are far from the others'.
    expectations: the entries of --expected.
    """

    schema: str
    tool: str
    compared_with: str
    kinds: tuple[Kind, ...]
    unexpected: tuple[str, ...]
    notes: tuple[str, ...]
    expected: tuple[str, ...] | int | None
    silent: tuple[Silent, ...]
    repeated: dict[str, int]
    garbled: dict[str, int]
    configurations: tuple[Configuration, ...]
    sections: dict[str, dict[str, dict[str, FactValue]]]
    ranges: dict[str, dict[str, tuple[int | float, int | float]]]
    varying: tuple[str, ...]
    hazards: tuple[Hazard, ...] = ()
    figures: dict[str, dict[str, float]] = {}
    outliers: tuple[Outlier, ...] = ()
    unchecked: int = 0
    flagged: dict[str, str] = {}
    expectations: tuple[Expectation, ...] = ()
    groups: dict[str, tuple[str, ...]] = {}

    @property
    def reported(self) -> int:
        """How many nodes have a report."""
        return sum(len(configuration.nodes) for configuration in self.configurations)

    @property
    def drifts(self) -> bool:
        """Whether a node differs from what it is compared with."""
        return any(kind.drifts for kind in self.kinds)


class Holders(Struct, frozen=True):
    """A value of a fact, and the nodes that have it; null for nodes without the fact."""

    value: FactValue | None
    nodes: tuple[str, ...]


class FleetFact(Struct, frozen=True):
    """A fact with all its values, the rarest first."""

    name: str
    values: tuple[Holders, ...]


class FleetFacts(Struct, frozen=True):
    """Facts of a fleet, by name."""

    schema: str
    tool: str
    facts: tuple[FleetFact, ...]


class Step(Struct, frozen=True):
    """One fact that changed; null where there was or is none.

    nodes: those with this value before, where the nodes of the change had several; otherwise ().
    """

    name: str
    before: FactValue | None
    after: FactValue | None
    nodes: tuple[str, ...] = ()


class Change(Struct, frozen=True):
    """Facts that changed on the same nodes. left_behind: those that had the same before, and have it still.

    Nodes are left behind where most of those with the former values have the new ones.
    """

    nodes: tuple[str, ...]
    left_behind: tuple[str, ...]
    steps: tuple[Step, ...]


class FleetDifference(Struct, frozen=True):
    """What became of a fleet.

    nodes: how many reported both times. silent: those that reported before alone, and why.
    expectations: the entries of --expected.
    """

    schema: str
    tool: str
    before: str
    after: str
    nodes: int
    new: tuple[str, ...]
    silent: tuple[Silent, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    expectations: tuple[Expectation, ...] = ()
