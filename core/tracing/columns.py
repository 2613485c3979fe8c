"""A record as a row of fixed columns, for formats that need to know them before the first row."""

from typing import Any

from mlbackends.model.trace import Record
from mlbackends.tracing import fields

COLUMNS: dict[str, type] = {
    "line_number": int,
    "kind": str,
    "tracer": str,
    "source": str,
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
        self._changing = [
            (index, fields.read(name))
            for index, name in enumerate(names)
            if name in fields.CHANGING
        ]
        self._readers = [fields.read(name) for name in names]
        self._known: dict[str, list[Any]] = {}

    def row(self, record: Record) -> list[Any]:
        """Return the values of all columns, in their order."""
        key = record.key
        if not key:
            return [reader(record) for reader in self._readers]
        key = f"{record.kind} {key}"
        known = self._known.get(key)
        if known is None:
            known = [reader(record) for reader in self._readers]
            if len(self._known) >= _MOST_KEYS:
                self._known.clear()
            self._known[key] = known
            return list(known)
        values = list(known)
        for index, reader in self._changing:
            values[index] = reader(record)
        return values
