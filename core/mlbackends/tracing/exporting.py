"""Writing a trace for other programs.

export(records, "trace.csv")                 the format by the name's end; .gz behind it is packed
export(records, "trace.json.gz")
export(records, "-", "jsonl")                standard output
"""

import csv
import gzip
import io
import json
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import islice
from operator import attrgetter
from typing import Any, BinaryIO, cast

import msgspec

from mlbackends.host.files import standard_output, whole_file
from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.patterns import UNFIT
from mlbackends.model.trace import Record, as_row
from mlbackends.model.writable import escaped
from mlbackends.tracing import EXPORTS, fields, perfetto

_MOST_KEYS = 50_000
_BATCH = 16_384

_NAMES = (
    *("line_number", "kind", "tracer", "source", "prefix", "process", "thread", "start_ns"),
    *("clock", "duration_ns", "event", "cache", "operation", "shape", "dtype", "implementation"),
    *("isa", "engine", "propagation", "memory_descriptors", "attributes", "auxiliary", "flops"),
    *("bytes", "gflops", "gigabytes_per_second", "slow_path", "executed", "nested", "counted"),
    *("workspace_query", "component", "level", "who", "reason", "place", "text", "version", "raw"),
)
COLUMNS = {name: fields.KINDS[name] for name in _NAMES}
"""The names and types. What is not known is None, of texts ""; bytes that are no UTF-8 stay as they are."""


def format_of(path: str) -> str:
    """Return the format that a file's name ends with; raises BadInput, with those there are."""
    name = os.path.basename(path).lower().removesuffix(".gz")
    for form, endings in EXPORTS.items():
        if name.endswith(endings):
            return form
    all_endings = ", ".join(end for endings in EXPORTS.values() for end in endings)
    raise BadInput(f"{path!r} does not tell a format", f"it may end with {all_endings}")


def export(records: Iterable[Record], path: str, format_name: str = "") -> int:
    """Write records to a file, or to standard output where the path is "-"; return how many went in.

    The file comes to be when all is written; what was there before stays until then. A device or a FIFO
    is written to as the records come. Raises UnknownName for a format that is none, BadInput where the
    file cannot be written or the format lacks what it needs, BrokenPipeError where its reader has gone.
    """
    form = format_name or format_of(path)
    if form not in EXPORTS:
        raise UnknownName("export", form, tuple(EXPORTS))
    try:
        with ExitStack() as stack:
            file = stack.enter_context(standard_output() if path == "-" else whole_file(path))
            if path.lower().endswith(".gz"):
                # Without a name and a time in it, equal traces make equal files.
                packed = gzip.GzipFile(
                    filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0
                )
                file = cast("BinaryIO", stack.enter_context(packed))
            return _WRITERS[form](records, file)
    except BrokenPipeError:  # its reader has seen enough
        raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None


def rows(records: Iterable[Record]) -> Iterable[list[Any]]:
    """Yield the values of all columns, in their order; what equal calls have in common is read once."""
    readers = [fields.read(name) for name in COLUMNS]
    names = list(COLUMNS)
    # What a record holds; its rates are computed here, as reading one derives all of a call's work.
    changing = [each for each in names if each in fields.CHANGING & {*Record.__struct_fields__}]
    places = [names.index(name) for name in changing]
    rates = [
        (names.index(amount), names.index(rate))
        for amount, rate in (("flops", "gflops"), ("bytes", "gigabytes_per_second"))
    ]
    executed, query = names.index("executed"), names.index("workspace_query")
    values_of = attrgetter(*changing)
    first_rows: dict[tuple[type, str], list[Any]] = {}
    for record in records:
        first = first_rows.get((type(record), record.key)) if record.key else None
        if first is not None:
            row = list(first)
            for place, value in zip(places, values_of(record), strict=True):
                row[place] = value
            timed = record.duration_ns and row[executed] and not row[query]
            for amount, rate in rates:
                is_known = timed and row[amount] is not None
                row[rate] = row[amount] / record.duration_ns if is_known else None
        else:
            row = [reader(record) for reader in readers]
            if record.key:
                if len(first_rows) >= _MOST_KEYS:
                    first_rows.clear()
                first_rows[type(record), record.key] = list(row)
        yield row


def csv_cell(value: object) -> object:
    """Return a value as CSV has it: truths in lower case, U+FFFD for what must not be shown."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    return "\r\n".join(UNFIT.sub("\ufffd", line) for line in value.split("\r\n"))


def _write_csv(records: Iterable[Record], file: BinaryIO) -> int:
    """Write one row a record, as in RFC 4180, but with line feeds alone; what is not known is empty."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    truths = [place for place, kind in enumerate(COLUMNS.values()) if kind is bool]
    source, count = _NAMES.index("source"), 0
    for row in rows(records):
        for place in truths:
            row[place] = csv_cell(row[place])
        # The line, the last column, and its file's name hold what all others are made of.
        writer.writerow(row if f"{row[-1]}{row[source]}".isprintable() else map(csv_cell, row))
        count += 1
    text.flush()
    text.detach()  # the file is not ours to close
    return count


def _write_jsonl(records: Iterable[Record], file: BinaryIO) -> int:
    """Write one object a record, with its own fields, its signature's and what is derived."""
    encode = msgspec.json.Encoder().encode
    count = 0
    for record in records:
        row = as_row(record)
        try:
            line = encode(row)
        except UnicodeEncodeError:
            # Bytes that are no UTF-8 stand as halves of characters; only Python writes and reads those.
            line = json.dumps(row, default=str).encode()
        file.write(escaped(line) + b"\n")
        count += 1
    return count


def _write_parquet(records: Iterable[Record], file: BinaryIO) -> int:
    """Write groups of rows in typed columns; bytes that are no UTF-8 become "?"."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            f"Parquet is written by pyarrow, which cannot be imported: {error}",
            "pip install 'mlbackends[parquet]', or write .csv or .jsonl",
        ) from None
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    source, count = iter(rows(records)), 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(islice(source, _BATCH)):
            arrays = []
            for field, values in zip(schema, zip(*batch, strict=True), strict=True):
                column = list(values)
                if field.type == pa.string():
                    column = [text.encode("utf-8", "replace").decode() for text in values]
                arrays.append(pa.array(column, type=field.type))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(batch)
    return count


_WRITERS: dict[str, Callable[[Iterable[Record], BinaryIO], int]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "perfetto": perfetto.write,
}
