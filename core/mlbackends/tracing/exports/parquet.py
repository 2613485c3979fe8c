"""Parquet: one row for each record, in fixed typed columns; needs pyarrow (the extra `parquet`)."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, BinaryIO

from mlbackends.model.errors import BadInput
from mlbackends.model.trace import Record
from mlbackends.tracing.exporting import COLUMNS, Rows

ENDINGS = (".parquet",)
_ROWS = 16_384


def write(records: Iterable[Record], file: BinaryIO) -> int:
    """Write groups of 16,384 rows; return how many rows. Bytes that are no UTF-8 become U+FFFD.

    Raises BadInput where pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            f"Parquet is written by pyarrow, which cannot be imported: {error}",
            "pip install 'mlbackends[parquet]', or write .csv or .jsonl",
        ) from None
    kinds = {
        str: pa.string(),
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    texts = [index for index, kind in enumerate(COLUMNS.values()) if kind is str]
    rows, source, count = Rows(), iter(records), 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := [rows.row(record) for record in islice(source, _ROWS)]:
            columns: list[list[Any]] = [list(column) for column in zip(*batch, strict=True)]
            for index in texts:
                columns[index] = [_clean(value) for value in columns[index]]
            arrays = [
                pa.array(column, type=field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(batch)
    return count


def _clean(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
