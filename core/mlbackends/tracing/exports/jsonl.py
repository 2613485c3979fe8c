"""JSON Lines: one object for each record, with its own fields, its signature's and what is derived."""

import json
from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from mlbackends.model.trace import Record, as_row

ENDINGS = (".jsonl", ".ndjson")


def write(records: Iterable[Record], file: BinaryIO) -> int:
    """Write one line a record; return how many."""
    encode = msgspec.json.Encoder().encode
    count = 0
    for record in records:
        row = as_row(record)
        try:
            line = encode(row)
        except UnicodeEncodeError:
            # Bytes that are no UTF-8 stand as halves of characters; only Python writes and reads those.
            line = json.dumps(row, default=str).encode()
        file.write(line + b"\n")
        count += 1
    return count
