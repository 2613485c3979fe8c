"""CSV: one row for each record, in fixed columns, with names in the first row.

As in RFC 4180, but that lines end in a line feed alone.
"""

import csv
import io
from collections.abc import Iterable
from typing import BinaryIO

from mlbackends.model.trace import Record
from mlbackends.tracing.exporting import COLUMNS, Rows

ENDINGS = (".csv",)


def write(records: Iterable[Record], file: BinaryIO) -> int:
    """Write one row a record; return how many. What is not known is empty; no byte is changed but NUL."""
    text = io.TextIOWrapper(
        file, encoding="utf-8", errors="surrogateescape", newline="", write_through=False
    )
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    rows = Rows()
    count = 0
    truths = [place for place, kind in enumerate(COLUMNS.values()) if kind is bool]
    for record in records:
        row = rows.row(record)
        for place in truths:
            row[place] = "true" if row[place] else "false"
        if "\0" in record.raw:
            row = [_without_nul(value) for value in row]
        writer.writerow(row)
        count += 1
    text.flush()
    text.detach()  # the file is not ours to close
    return count


def _without_nul(value: object) -> object:
    # For many readers of CSV it ends the text.
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value
