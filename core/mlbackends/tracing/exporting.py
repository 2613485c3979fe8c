"""Writing a trace for other programs.

export(records, "trace.csv")                 the format by the name's end; .gz behind it is packed
export(records, "trace.json.gz")
export(records, "-", "jsonl")                standard output
"""

import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import BinaryIO, cast

from mlbackends.host.files import standard_output, whole_file
from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.trace import Record
from mlbackends.tracing import EXPORTS, perfetto
from mlbackends.tracing.line_writers import CsvWriter, JsonWriter, LineWriter
from mlbackends.tracing.rows import COLUMNS, rows

_BATCH = 16_384


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
    with opened(path) as file:
        return _WRITERS[form](records, file)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file for an export, as `export` does."""
    try:
        with ExitStack() as stack:
            file = stack.enter_context(standard_output() if path == "-" else whole_file(path))
            if path.lower().endswith(".gz"):
                # Without a name and a time in it, equal traces make equal files.
                packed = gzip.GzipFile(
                    filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0
                )
                file = cast("BinaryIO", stack.enter_context(packed))
            yield file
    except BrokenPipeError:  # its reader has seen enough
        raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None


def _write_lines(kind: type[LineWriter], records: Iterable[Record], file: BinaryIO) -> int:
    writer = kind(file)
    for record in records:
        writer.write(record)
    writer.close()
    return writer.count


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


LINES: dict[str, type[LineWriter]] = {"csv": CsvWriter, "jsonl": JsonWriter}
"""Formats of one line a record, whose writers a `Walk` takes."""
_WRITERS: dict[str, Callable[[Iterable[Record], BinaryIO], int]] = {
    **{name: partial(_write_lines, kind) for name, kind in LINES.items()},
    "parquet": _write_parquet,
    "perfetto": perfetto.write,
}
