"""A record as a row of fixed columns, for formats that need to know them before the first row."""

from operator import attrgetter
from typing import Any

from mlbackends.model.trace import Record
from mlbackends.tracing import fields

COLUMNS: dict[str, type] = {
    "line_number": int,
    "kind": str,
    "tracer": str,
    "source": str,
    "prefix": str,
    "process": int,
    "thread": int,
    "start_ns": int,
    "clock": str,
    "duration_ns": float,
    "event": str,
    "cache": str,
    "operation": str,
    "shape": str,
    "dtype": str,
    "implementation": str,
    "isa": str,
    "engine": str,
    "propagation": str,
    "memory_descriptors": str,
    "attributes": str,
    "auxiliary": str,
    "flops": float,
    "bytes": float,
    "gflops": float,
    "gigabytes_per_second": float,
    "slow_path": str,
    "executed": bool,
    "nested": bool,
    "counted": bool,
    "workspace_query": bool,
    "component": str,
    "level": str,
    "who": str,
    "reason": str,
    "place": str,
    "text": str,
    "version": str,
    "raw": str,
}
"""The names and types. What is not told is None, of texts ""; bytes that are no UTF-8 stay as they are."""

_MOST_KEYS = 50_000


class Rows:
    """Makes rows; what equal calls have in common is read once."""

    def __init__(self) -> None:
        names = tuple(COLUMNS)
        self._readers = [fields.read(name) for name in names]
        self._places = [names.index(name) for name in _FROM_RECORD]
        self._duration = _FROM_RECORD.index("duration_ns")
        self._rates = [
            (names.index(amount), names.index(rate))
            for amount, rate in (("flops", "gflops"), ("bytes", "gigabytes_per_second"))
        ]
        self._executed = names.index("executed")
        self._query = names.index("workspace_query")
        self._known: dict[tuple[type, str], list[Any]] = {}

    def row(self, record: Record) -> list[Any]:
        """Return the values of all columns, in their order."""
        key = record.key
        if not key:
            return [reader(record) for reader in self._readers]
        known = self._known.get((type(record), key))
        if known is None:
            known = [reader(record) for reader in self._readers]
            if len(self._known) >= _MOST_KEYS:
                self._known.clear()
            self._known[type(record), key] = known
            return list(known)
        values = list(known)
        changing = _changing(record)
        for place, value in zip(self._places, changing, strict=True):
            values[place] = value
        duration = changing[self._duration]
        timed = duration and values[self._executed] and not values[self._query]
        for amount, rate in self._rates:
            total = values[amount]
            values[rate] = total / duration if timed and total is not None else None
        return values


_FROM_RECORD = tuple(
    name for name in COLUMNS if name in fields.CHANGING and name in Record.__struct_fields__
)
_changing = attrgetter(*_FROM_RECORD)
