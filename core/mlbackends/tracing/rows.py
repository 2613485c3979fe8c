"""Records as rows of values: the columns of CSV and Parquet."""

from typing import Any

from mlbackends.base.patterns import UNFIT
from mlbackends.model.trace import Record, as_row
from mlbackends.tracing import fields

_NAMES = (
    *("line_number", "kind", "tracer", "source", "prefix", "process", "thread", "start_ns"),
    *("clock", "duration_ns", "event", "cache", "operation", "shape", "dtype", "implementation"),
    *("isa", "engine", "propagation", "memory_descriptors", "attributes", "auxiliary", "flops"),
    *("bytes", "gflops", "gigabytes_per_second", "slow_path", "executed", "nested", "counted"),
    *(
        "workspace_query",
        "component",
        "level",
        "origin",
        "reason",
        "place",
        "text",
        "version",
        "raw",
    ),
)
#: The names and types. What is not known is None, of texts ""; bytes that are no UTF-8 stay as they are.
COLUMNS = {name: fields.KINDS[name] for name in _NAMES}
_EMPTY = {name: "" if kind is str else None for name, kind in COLUMNS.items()}


def row(record: Record) -> dict[str, Any]:
    """Return the values of all columns."""
    fields = as_row(record) | {"cache": record.cache}
    return {name: fields.get(name, empty) for name, empty in _EMPTY.items()}


def csv_cell(value: object) -> object:
    """Return a value as CSV has it: truths in lower case, U+FFFD for what must not be shown."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    return "\r\n".join(UNFIT.sub("\ufffd", line) for line in value.split("\r\n"))
