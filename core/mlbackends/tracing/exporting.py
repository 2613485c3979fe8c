"""Writing a trace for other programs.

export(records, "trace.csv")                 the format by the name's end; .gz behind it is packed
export(records, "trace.json.gz")
export(records, "-", "jsonl")                standard output
"""

import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from io import BytesIO
from typing import Any, BinaryIO, cast

import msgspec

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.installed import install_command
from mlbackends.base.tables import table
from mlbackends.base.writable import csv_cell, escaped
from mlbackends.host.files import standard_output, whole_file
from mlbackends.model.trace import Record, as_row
from mlbackends.tracing import EXPORTS, fields, perfetto
from mlbackends.tracing.walk import Follower


def format_of(path: str) -> str:
    """Return the format that a file's name ends with; raises BadInput, with those there are."""
    name = os.path.basename(path).lower().removesuffix(".gz")
    for form, endings in EXPORTS.items():
        if name.endswith(endings):
            return form
    all_endings = ", ".join(end for endings in EXPORTS.values() for end in endings)
    raise BadInput(f"{path!r} has no known format", f"known endings: {all_endings}")


def export(records: Iterable[Record], path: str, format_name: str = "") -> int:
    """Write records to a file, or to standard output where the path is "-"; return how many went in.

    The file appears when all is written; an older one stays until then. A device or a FIFO is written
    as the records come. Raises UnknownName for a format that is none, BadInput where the
    file cannot be written or the format lacks what it needs, BrokenPipeError where its reader has gone.
    """
    form = format_name or format_of(path)
    if form not in EXPORTS:
        raise UnknownName("export", form, tuple(EXPORTS))
    with opened(path) as file:
        if form not in LINES:
            return perfetto.write(records, file)
        with closing(LINES[form](file)) as writer:
            for record in records:
                writer.add(record)
        return writer.count


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file for an export, as `export` does."""
    try:
        with ExitStack() as stack:
            file = stack.enter_context(standard_output() if path == "-" else whole_file(path))
            if path.lower().endswith(".gz"):
                # Without a name and a time in it, equal traces make equal files.
                packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
                file = cast("BinaryIO", stack.enter_context(packed))
            yield file
    except BrokenPipeError:  # its reader has seen enough
        raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None


#: The names and types. What is not known is None, of texts ""; bytes that are not UTF-8 stay as they are.
COLUMNS = {name: fields.KINDS[name] for name in table("tracing/fields")["columns"]}
_EMPTY = {name: "" if kind is str else None for name, kind in COLUMNS.items()}


def row(record: Record) -> dict[str, Any]:
    """Return the values of all columns."""
    values = as_row(record) | {"cache": record.cache}
    return {name: values.get(name, empty) for name, empty in _EMPTY.items()}


class LineWriter:
    """Writes a line for each record; a collector of a `Walk`. count: the number of records."""

    HEAD = ""
    BUFFERED = 1000

    def __init__(self, file: BinaryIO) -> None:
        self.count = 0
        self._file = file
        self._lines: list[Any] = []
        file.write(self.HEAD.encode())

    def values(self, record: Record) -> dict[str, Any]:
        """Return the fields of a record, in the line's order."""
        return row(record)

    def cell(self, value: object) -> object:
        """Return a value as it is written."""
        return value

    def line(self, values: dict[str, Any]) -> Any:
        """Return fields as a line, with its end."""
        return tuple(values.values())

    def add(self, record: Record) -> None:
        """Write a record."""
        self._append(self.line(self.values(record)))

    def follow(self, record: Record) -> Follower:
        """Return what writes each later call that is equal to one that was added."""
        values = self.values(record)
        flops = traffic = None
        if record.executed and not record.workspace_query:
            flops, traffic = record.flops, record.bytes

        cell, clocks = self.cell, (self.cell("epoch"), self.cell(""))

        def write(line: bytes, number: int, duration: float | None, start_ns: int | None) -> None:
            rate = flops / duration if flops is not None and duration else None
            traffic_rate = traffic / duration if traffic is not None and duration else None
            values["line_number"], values["duration_ns"] = cell(number), cell(duration)
            values["start_ns"], values["clock"] = cell(start_ns), clocks[start_ns is None]
            values["gflops"], values["gigabytes_per_second"] = cell(rate), cell(traffic_rate)
            values["raw"] = cell(line.rstrip(b"\r\n").decode("utf-8", "surrogateescape"))
            self._append(self.line(values))

        return write

    def close(self) -> None:
        """Write what is left; the file is not ours to close."""
        if self._lines:
            self.put(self._lines)
        self.count += len(self._lines)
        self._lines.clear()

    def _append(self, line: Any) -> None:
        self._lines.append(line)
        if len(self._lines) >= self.BUFFERED:
            LineWriter.close(self)

    def put(self, lines: list[Any]) -> None:
        """Write lines to the file."""
        self._file.write(b"".join(lines))


class CsvWriter(LineWriter):
    """Rows as in RFC 4180, but with line feeds alone; what is not known is empty."""

    HEAD = ",".join(COLUMNS) + "\n"

    def values(self, record: Record) -> dict[str, Any]:
        """Return the columns, as they are written: those that repeat are quoted once."""
        return {name: self.cell(value) for name, value in row(record).items()}

    def cell(self, value: object) -> str:
        """Return a value as a cell, in quotes where it needs them."""
        if value is None:
            return ""
        if type(value) in (int, float):  # most cells of a trace
            return str(value)
        text = str(csv_cell(value))
        return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES(text) else text

    def line(self, values: dict[str, Any]) -> bytes:
        """Return a row."""
        return (",".join(values.values()) + "\n").encode("utf-8", "surrogateescape")


class JsonWriter(LineWriter):
    """Objects with a record's own fields, its signature's and what is derived."""

    def values(self, record: Record) -> dict[str, Any]:
        """Return a record's own fields, its signature's and what is derived of it."""
        return as_row(record)

    def line(self, values: dict[str, Any]) -> bytes:
        """Return an object."""
        try:
            line = _encode(values)
        except UnicodeEncodeError:
            # Bytes that are not UTF-8 become halves of characters; only Python writes and reads those.
            line = json.dumps(values, default=str).encode()
        return escaped(line) + b"\n"


class ParquetWriter(LineWriter):
    """Groups of rows in typed columns; bytes that are not UTF-8 become "?"."""

    BUFFERED = 16_384

    def __init__(self, file: BinaryIO) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise BadInput(
                f"Parquet is written by pyarrow, which cannot be imported: {error}",
                f"{install_command('parquet')}, or write .csv or .jsonl",
            ) from None
        super().__init__(BytesIO())
        kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
        self._schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
        self._table = pa.table
        self._written = parquet.ParquetWriter(file, self._schema, compression="zstd")

    def close(self) -> None:
        """Write what is left, and what ends the file."""
        super().close()
        self._written.close()

    def put(self, lines: list[tuple[Any, ...]]) -> None:
        """Write rows as a group."""
        columns = dict(zip(COLUMNS, zip(*lines, strict=True), strict=True))
        for name, kind in COLUMNS.items():
            if kind is str:
                texts = (text.encode("utf-8", "replace").decode() for text in columns[name])
                columns[name] = tuple(texts)
        self._written.write_table(self._table(columns, schema=self._schema))


_encode = msgspec.json.Encoder().encode
_NEEDS_QUOTES = re.compile('[",\r\n]').search

#: Formats whose writers a `Walk` takes.
LINES: dict[str, type[LineWriter]] = {
    "csv": CsvWriter,
    "jsonl": JsonWriter,
    "parquet": ParquetWriter,
}
