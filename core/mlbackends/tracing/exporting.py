"""Writing a trace for other programs: the formats are the files of exports/.

Formats that need to know their columns before the first row take those of COLUMNS.

export(records, "trace.csv")                 the format by the name's end; .gz behind it is packed
export(records, "trace.json.gz")
export(records, "-", "jsonl")                standard output
"""

import gzip
import os
from collections.abc import Iterable
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from mlbackends.host.files import standard_output, whole_file
from mlbackends.model import registry
from mlbackends.model.errors import BadInput
from mlbackends.model.trace import Record
from mlbackends.tracing import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTRY = "mlbackends.tracing.exports"


def formats() -> tuple[str, ...]:
    """Return the names of all formats."""
    return registry.names(REGISTRY)


def format_of(path: str) -> str:
    """Return the format that a file's name ends with; raises BadInput, with those there are."""
    name = os.path.basename(path).lower().removesuffix(".gz")
    for each in formats():
        if name.endswith(registry.load(REGISTRY, each).ENDINGS):
            return each
    endings = [end for each in formats() for end in registry.load(REGISTRY, each).ENDINGS]
    raise BadInput(f"{path!r} does not tell a format", f"it may end with {', '.join(endings)}")


def export(records: Iterable[Record], path: str, format_name: str = "") -> int:
    """Write records to a file, or to standard output where the path is "-"; return how many went in.

    The file comes to be when all is written; what was there before stays until then. A device or a FIFO
    is written to as the records come. Raises UnknownName for a format that is none, BadInput where the
    file cannot be written or the format lacks what it needs, BrokenPipeError where its reader has gone.
    """
    leaf = registry.load(REGISTRY, format_name or format_of(path))
    try:
        if path == "-":
            with standard_output() as file:
                return int(leaf.write(records, file))
        with whole_file(path) as whole, _packed(path, whole) as file:
            return int(leaf.write(records, file))
    except BrokenPipeError:  # its reader has seen enough
        raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def _packed(path: str, file: BinaryIO) -> "Iterator[BinaryIO]":
    if not path.lower().endswith(".gz"):
        yield file
        return
    # Without a name and a time in it, equal traces make equal files.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed:
        yield cast("BinaryIO", packed)


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
"""The names and types. What is not known is None, of texts ""; bytes that are no UTF-8 stay as they are."""

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
        self._rows: dict[tuple[type, str], list[Any]] = {}

    def row(self, record: Record) -> list[Any]:
        """Return the values of all columns, in their order."""
        key = record.key
        if not key:
            return [reader(record) for reader in self._readers]
        first = self._rows.get((type(record), key))
        if first is None:
            first = [reader(record) for reader in self._readers]
            if len(self._rows) >= _MOST_KEYS:
                self._rows.clear()
            self._rows[type(record), key] = first
            return list(first)
        values = list(first)
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
