"""Records as rows of values: the columns of CSV and Parquet."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from mlbackends.model.patterns import UNFIT
from mlbackends.model.trace import Record, as_row
from mlbackends.tracing import fields

_MOST_KEYS = 50_000

_NAMES = (
    *("line_number", "kind", "tracer", "source", "prefix", "process", "thread", "start_ns"),
    *("clock", "duration_ns", "event", "cache", "operation", "shape", "dtype", "implementation"),
    *("isa", "engine", "propagation", "memory_descriptors", "attributes", "auxiliary", "flops"),
    *("bytes", "gflops", "gigabytes_per_second", "slow_path", "executed", "nested", "counted"),
    *("workspace_query", "component", "level", "who", "reason", "place", "text", "version", "raw"),
)
COLUMNS = {name: fields.KINDS[name] for name in _NAMES}
"""The names and types. What is not known is None, of texts ""; bytes that are no UTF-8 stay as they are."""
_EMPTY = {name: "" if kind is str else None for name, kind in COLUMNS.items()}


def rows(records: Iterable[Record]) -> Iterable[list[Any]]:
    """Yield the values of all columns, in their order; what equal calls have in common is read once."""
    return map(Rows().row, records)


class Rows:
    """Makes rows of records."""

    def __init__(self) -> None:
        names = list(COLUMNS)
        # What a record holds; its rates are computed here, as reading one derives all of a call's work.
        changing = [each for each in names if each in fields.CHANGING & {*Record.__struct_fields__}]
        self._places = [names.index(name) for name in changing]
        self._rates = [
            (names.index(amount), names.index(rate))
            for amount, rate in (("flops", "gflops"), ("bytes", "gigabytes_per_second"))
        ]
        self._executed, self._query = names.index("executed"), names.index("workspace_query")
        self._values_of = attrgetter(*changing)
        self._first: dict[tuple[type, str], list[Any]] = {}

    def row(self, record: Record) -> list[Any]:
        """Return the values of all columns."""
        first = self._first.get((type(record), record.key)) if record.key else None
        if first is None:
            known = as_row(record)
            known["cache"] = record.cache
            row = [known.get(name, empty) for name, empty in _EMPTY.items()]
            if record.key:
                if len(self._first) >= _MOST_KEYS:
                    self._first.clear()
                self._first[type(record), record.key] = list(row)
            return row
        row = list(first)
        for place, value in zip(self._places, self._values_of(record), strict=True):
            row[place] = value
        duration = record.duration_ns if row[self._executed] and not row[self._query] else None
        for amount, rate in self._rates:
            value = row[amount]
            row[rate] = value / duration if duration and value is not None else None
        return row


def csv_cell(value: object) -> object:
    """Return a value as CSV has it: truths in lower case, U+FFFD for what must not be shown."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    return "\r\n".join(UNFIT.sub("\ufffd", line) for line in value.split("\r\n"))
