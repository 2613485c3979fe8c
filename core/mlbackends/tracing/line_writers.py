"""Records as lines of text: CSV and JSON Lines.

Most calls of a trace repeat. A writer is a taker of a `Walk`: of a call that comes again it changes the few
fields that differ in the line that it wrote before, and of one with other sizes a few more.
"""

import csv
import json
import re
from collections.abc import Iterable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, BinaryIO, Literal

import msgspec

from mlbackends.base.writable import escaped
from mlbackends.model.signature import PrimitiveSignature
from mlbackends.model.trace import Call, Record, as_row
from mlbackends.tracing.rows import COLUMNS, csv_cell, row
from mlbackends.tracing.walk import LineFollower, repeated

_BLANK = ord(" ")
#: A field that is to be filled in: no line that stands in quotes as it is holds this sign.
_MARK = re.compile('"?§([a-z_]+)§"?'.encode())
#: What differs between equal calls of one place.
_FILLED = ("line_number", "start_ns", "duration_ns", "gflops", "gigabytes_per_second", "raw")
#: What else differs between primitives that differ in their sizes alone.
_SIZED = ("key", "problem", "shape", "flops", "bytes")
#: What such primitives have in common.
_ALIKE = attrgetter(
    *(name for name in Call.__struct_fields__ if name not in {*_FILLED, "signature"}),
    *(f"signature.{name}" for name in PrimitiveSignature.__struct_fields__ if name not in _SIZED),
)
_MOST_FORMS = 10_000
#: A line in parts; every second one is the name of a field that is to be filled in.
Parts = tuple[bytes, ...]


_encode = msgspec.json.Encoder().encode


class LineWriter:
    """Writes a line for each record, the last of them when it is closed. count: how many were written.

    HEAD: the first line. NULL: an unknown value. QUOTE: around texts that hold no separator. SPECIAL: what
    must be escaped in quotes. NUMBERS, RAW: the places of these in a line. BUFFERED: the lines
    of one write.
    """

    HEAD = SPECIAL = ""
    BUFFERED = 1000
    NULL = QUOTE = b""
    NUMBERS, RAW = slice(1, 10, 2), 11

    def __init__(self, file: BinaryIO) -> None:
        self.count = 0
        self._file = file
        self._lines: list[bytes] = []
        file.write(self.HEAD.encode())
        self._last: Parts | None = None
        self._sized: dict[tuple[object, ...], Parts] = {}

    def fields(self, record: Record) -> dict[str, Any]:
        """Return the fields of a record, in the line's order."""
        raise NotImplementedError

    def line(self, fields: dict[str, Any]) -> bytes:
        """Return fields as a line, with its end."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write the lines that are held."""
        self._write(b"".join(self._lines))
        self.count += len(self._lines)
        self._lines.clear()

    def close(self) -> None:
        """Write what is left; the file is not ours to close."""
        self.flush()

    def _write(self, lines: bytes) -> None:
        self._file.write(lines)

    def write(self, record: Record) -> None:
        """Write a record."""
        self.append(self.line(self.fields(record)))

    def add(self, record: Record) -> None:
        """Write a record that may come again."""
        self._last = None
        has_mark = "§" in record.source or "§" in record.prefix
        if not isinstance(record, Call) or has_mark or not self._is_plain(record.raw):
            self.write(record)
            return
        self._last = self._form(record)
        parts = [*self._last]
        # One call for all numbers: Python's own would take longer than all the rest.
        numbers = _encode([getattr(record, name) for name in _FILLED[:-1]])[1:-1]
        parts[self.NUMBERS] = numbers.replace(b"null", self.NULL).split(b",")
        parts[self.RAW] = b'"%b"' % record.raw.encode()
        self.append(b"".join(parts))

    def follow_lines(self, record: Call) -> LineFollower:
        """Return what writes each later call that is equal to the one that was added last."""
        return _Again(self, record, self._last).take

    def append(self, line: bytes) -> None:
        """Write a line."""
        self._lines.append(line)
        if len(self._lines) >= self.BUFFERED:
            self.flush()

    def _is_plain(self, raw: str) -> bool:
        """Tell whether a line stands in quotes as it is, in all formats."""
        is_text = raw.isascii() and raw.isprintable() and "," in raw
        return is_text and not any(each in raw for each in self.SPECIAL)

    def _form(self, record: Call) -> Parts:
        signature = record.signature
        # Of a graph's kernel, sizes that are damaged may hold a comma.
        if isinstance(signature, PrimitiveSignature) and "," not in signature.problem:
            alike = (type(record), *_ALIKE(record))
            parts = self._sized.get(alike)
            if parts is None:
                if len(self._sized) >= _MOST_FORMS:
                    self._sized.clear()
                parts = self._sized[alike] = self._parts(record, (*_FILLED, *_SIZED))
            texts = (signature.key, signature.problem, signature.problem)
            values = [b"%b%b%b" % (self.QUOTE, text.encode(), self.QUOTE) for text in texts]
            numbers = _encode((record.flops, record.bytes))[1:-1].replace(b"null", self.NULL)
            return _filled(parts, dict(zip(_NAMES, [*values, *numbers.split(b",")], strict=True)))
        return self._parts(record, _FILLED)

    def _parts(self, record: Call, names: tuple[str, ...]) -> Parts:
        fields = self.fields(record)
        # A mark stands in quotes where texts always do.
        marks = {name: f"§{name}§" for name in names if name in fields}
        return tuple(_MARK.split(self.line(fields | marks)))


class _Again:
    """Writes a call that comes again. It is small, as there are many, and each is far away in memory."""

    __slots__ = ("flops", "form", "has_start", "record", "traffic", "writer")

    def __init__(self, writer: LineWriter, record: Call, form: Parts | None) -> None:
        self.writer, self.record, self.form = writer, record, form
        self.has_start = record.start_ns is not None
        self.flops = self.traffic = None
        if record.executed and not record.workspace_query:
            self.flops, self.traffic = record.flops, record.bytes

    # A million lines go through here: nothing in it is a function of its own.
    def take(self, line: bytes, number: int, duration: float, start_ns: int | None) -> None:
        """Write a line."""
        line = line.rstrip(b"\r\n")
        writer, form = self.writer, self.form
        # What may stand behind a number that is damaged is a blank.
        if form is None or line[-1] <= _BLANK or self.has_start is (start_ns is None):
            writer.write(repeated(self.record, line, number, duration, start_ns))
            return
        rate = None if self.flops is None or not duration else self.flops / duration
        flow = None if self.traffic is None or not duration else self.traffic / duration
        numbers = _encode((number, start_ns, duration, rate, flow))[1:-1]
        if writer.NULL != b"null":
            numbers = numbers.replace(b"null", writer.NULL)
        parts = [*form]
        parts[writer.NUMBERS] = numbers.split(b",")
        parts[writer.RAW] = b'"%b"' % line
        writer.append(b"".join(parts))


_NAMES = [name.encode() for name in _SIZED]


def _filled(parts: Parts, values: dict[bytes, bytes]) -> Parts:
    """Return a line with some of its fields filled in."""
    found = [parts[0]]
    for name, behind in zip(parts[1::2], parts[2::2], strict=True):
        if name in values:
            found[-1] += values[name] + behind
        else:
            found += (name, behind)
    return tuple(found)


class CsvWriter(LineWriter):
    """Rows as in RFC 4180, but with line feeds alone; what is not known is empty."""

    HEAD = ",".join(COLUMNS) + "\n"
    SPECIAL = '"'
    QUOTING: Literal[0, 1] = csv.QUOTE_MINIMAL

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        # What it writes to has it back.
        writer = csv.writer(SimpleNamespace(write=str), lineterminator="\n", quoting=self.QUOTING)
        self._text_of = writer.writerow

    def fields(self, record: Record) -> dict[str, Any]:
        """Return the columns."""
        return row(record)

    def line(self, fields: dict[str, Any]) -> bytes:
        """Return a row."""
        return self.text(map(csv_cell, fields.values())).encode("utf-8", "surrogateescape")

    def text(self, values: Iterable[object]) -> str:
        """Return a row of values."""
        text: str = self._text_of(values)
        return text


class JsonWriter(LineWriter):
    """Objects with a record's own fields, its signature's and what is derived."""

    NULL, QUOTE = b"null", b'"'
    NUMBERS, RAW = slice(3, 12, 2), 1
    SPECIAL = '"\\'

    def fields(self, record: Record) -> dict[str, Any]:
        """Return a record's own fields, its signature's and what is derived of it."""
        return as_row(record)

    def line(self, fields: dict[str, Any]) -> bytes:
        """Return an object."""
        try:
            line = _encode(fields)
        except UnicodeEncodeError:
            # Bytes that are no UTF-8 stand as halves of characters; only Python writes and reads those.
            line = json.dumps(fields, default=str).encode()
        return escaped(line) + b"\n"
