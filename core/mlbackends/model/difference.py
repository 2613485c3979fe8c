"""What differs between two reports, by dotted name."""

from enum import StrEnum

from msgspec import Struct, field

from mlbackends.model.audit import Severity
from mlbackends.model.records import FactValue

SCHEMA = "backends.difference/1"


class Kind(StrEnum):
    """What became of a value from the first report to the second."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Change(Struct, frozen=True, omit_defaults=True):
    """One value that is not the same. before is None where it was added, after where it was removed.

    name: as in the report, where one thing of several is named by what it is, not by its place:
    `cudnn.libraries[libcudnn.so.9].version`, `nvidia.devices[0000:17:00.0].name`. severity: a note unless
    something became worse; why then states what.
    """

    name: str
    kind: Kind
    before: FactValue | None = None
    after: FactValue | None = None
    severity: Severity = field(default_factory=lambda: Severity.NOTE)
    why: str = ""


class Side(Struct, frozen=True):
    """One of the two reports."""

    name: str
    created: str
    depth: str
    tool: str


class Difference(Struct, frozen=True):
    """Every change, in the order of names. notes: what was not compared, and why."""

    schema: str
    tool: str
    before: Side
    after: Side
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
