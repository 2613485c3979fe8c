"""Which log a record came from, where several are read: its file's name, and the rank in it."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

if TYPE_CHECKING:
    from mlbackends.model.trace import Record
    from mlbackends.tracing.aggregate import Aggregate


def labels(names: Sequence[str]) -> tuple[str, ...]:
    """Return what to call each log: "" if it is alone, else its file's name, its path if two share that."""
    different = dict.fromkeys(names)
    if len(different) < 2:
        return tuple("" for _ in names)
    short = {name: os.path.basename(name) or name for name in different}
    count = Counter(short.values())
    short["-"] = "standard input"
    return tuple(short[name] if count[short[name]] < 2 else name for name in names)


def joined(log: str, source: str) -> str:
    """Return the source of a record of a log: "node0.log", or "node0.log/rank0"."""
    return f"{log}/{source}" if log and source else log or source


class Labelled:
    """Equal calls, or lines, of one log. count, durations: as in the aggregate."""

    __slots__ = ("_log", "_one", "count", "durations")

    def __init__(self, one: Any, log: str) -> None:
        self._one, self._log = one, log
        self.count: int = one.count
        self.durations: Sequence[float] = getattr(one, "durations", ())

    @property
    def record(self) -> "Record":
        """The first of them, which says what log it is of."""
        record: Record = self._one.record
        return structs.replace(record, source=joined(self._log, record.source))


class Together:
    """Several logs that were added up, each for itself: what a view takes instead of one aggregate."""

    def __init__(self, parts: "Sequence[tuple[str, Aggregate]]") -> None:
        self._parts = parts

    @property
    def groups(self) -> Iterator[Labelled]:
        """The calls."""
        return (Labelled(each, log) for log, part in self._parts for each in part.groups)

    @property
    def notes(self) -> Iterator[Labelled]:
        """The other lines of libraries."""
        return (Labelled(each, log) for log, part in self._parts for each in part.notes)
