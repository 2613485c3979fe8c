"""CSV: one row for each record, in fixed columns, with names in the first row.

As in RFC 4180, but that lines end in a line feed alone.
"""

import csv
import io
from collections.abc import Iterable
from typing import BinaryIO

from mlbackends.model.trace import Record
from mlbackends.tracing.columns import COLUMNS, Rows

ENDINGS = (".csv",)


def write(records: Iterable[Record], file: BinaryIO) -> int:
    """Write one row a record; return how many. What is not told is empty; no byte is changed but NUL."""
    text = io.TextIOWrapper(
        file, encoding="utf-8", errors="surrogateescape", newline="", write_through=False
    )
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    rows = Rows()
    count = 0
    for record in records:
        writer.writerow([_cell(value) for value in rows.row(record)])
        count += 1
    text.flush()
    text.detach()  # the file is not ours to close
    return count


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Python's reader takes no NUL before 3.13; elsewhere it ends a text.
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value
