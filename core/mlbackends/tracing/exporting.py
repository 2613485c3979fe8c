"""Writing a trace for other programs.

export(records, "trace.csv")                 the format by the name's end; .gz behind it is packed
export(records, "trace.json.gz")
export(records, "-", "jsonl")                standard output
"""

import csv
import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO, cast

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.host.files import standard_output, whole_file
from mlbackends.model.trace import Record
from mlbackends.tracing import EXPORTS, perfetto
from mlbackends.tracing.line_writers import CsvWriter, JsonWriter, LineWriter
from mlbackends.tracing.rows import COLUMNS


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


_LARGEST_BLOCK = 1 << 30


class ParquetWriter(CsvWriter):
    """Groups of rows in typed columns, which pyarrow reads out of CSV; bytes that are no UTF-8 become "?"."""

    BUFFERED = 16_384
    QUOTE, QUOTING = b'"', csv.QUOTE_ALL  # a "\\r" would end a line

    def __init__(self, file: BinaryIO) -> None:
        try:
            import pyarrow as pa
            from pyarrow import csv as pa_csv
            from pyarrow import parquet
        except ImportError as error:
            raise BadInput(
                f"Parquet is written by pyarrow, which cannot be imported: {error}",
                "pip install 'mlbackends[parquet]', or write .csv or .jsonl",
            ) from None
        super().__init__(BytesIO())
        kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
        schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
        self._options = pa_csv.ReadOptions(column_names=list(COLUMNS), use_threads=False)
        self._table = partial(
            pa_csv.read_csv,
            read_options=self._options,
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(column_types=schema, null_values=[""]),
        )
        self._written = parquet.ParquetWriter(file, schema, compression="zstd")

    def line(self, fields: dict[str, Any]) -> bytes:
        """Return a row, with all characters as they are."""
        return self.text(fields.values()).encode("utf-8", "replace")

    def close(self) -> None:
        """Write what is left, and what ends the file."""
        super().close()
        self._written.close()

    def _write(self, lines: bytes) -> None:
        if lines:
            # pyarrow takes no row that is longer than its blocks.
            self._options.block_size = min(len(lines), _LARGEST_BLOCK)
            self._written.write_table(self._table(BytesIO(lines)))


def _write_lines(kind: type[LineWriter], records: Iterable[Record], file: BinaryIO) -> int:
    with closing(kind(file)) as writer:
        for record in records:
            writer.add(record)
    return writer.count


#: Formats whose writers a `Walk` takes.
LINES: dict[str, type[LineWriter]] = {
    "csv": CsvWriter,
    "jsonl": JsonWriter,
    "parquet": ParquetWriter,
}
_WRITERS: dict[str, Callable[[Iterable[Record], BinaryIO], int]] = {
    **{name: partial(_write_lines, kind) for name, kind in LINES.items()},
    "perfetto": perfetto.write,
}
