"""Logs as records: a program's output with the lines of MKL and oneDNN anywhere in it.

A line of a library begins with its marker, wherever that stands, and goes to the line's end, since
programs print without ending their own lines. What stands before it is a launcher's prefix, and
then goes into the record, or else the program's text. Only what keeps to the grammar from the marker
to the end is taken: text that talks about markers is text. A line that begins with a marker and goes
on as something else is `Malformed`, and so is the last one of a log that ends before it does. Text of
the program right behind a call is text, as far as it can be told from the call's own numbers.

Colours around and in a line of a library are dropped, like the line's end.
Program text comes out byte for byte: the `raw` of all Text records, one behind the other.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

from msgspec import structs

from mlbackends.model.trace import AnyRecord, Malformed, Text
from mlbackends.tracing import colours, markers
from mlbackends.tracing.labels import joined as joined_source
from mlbackends.tracing.markers import Marker
from mlbackends.tracing.prefixes import NO_PREFIX, Prefix, prefix
from mlbackends.tracing.sources import Source

_CUT = "the line is cut off"
_FOREIGN = "the line begins as one of the library's and goes on as none that is known"
LONGEST_LINE = 1 << 20
"""So many bytes without a line's end are cut: no library prints such a line."""


def read(name: str, file: BinaryIO | None = None) -> Iterator[AnyRecord]:
    """Yield the records of a log; "-" is standard input. Raises BadInput where it cannot be opened.

    Damage, as of a compressed file that was cut off, ends the records; who must tell of it makes the
    Source himself and asks it.
    """
    return records(Source(name, file=file).chunks())


def records(
    chunks: Iterable[bytes], *, prefixes: bool = True, log: str = ""
) -> Iterator[AnyRecord]:
    """Yield the records of UTF-8 text that comes in pieces, cut anywhere.

    prefixes: False where no launcher can have put any: then each byte before a line is the program's.
    log: what to call it in the records' `source`, where there are several.
    """
    for number, line in enumerate(lines(chunks), 1):
        if not log:
            yield from line_records(line, number, prefixes=prefixes)
            continue
        for record in line_records(line, number, prefixes=prefixes):
            structs.force_setattr(record, "source", joined_source(log, record.source))
            yield record


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends; the last may have none, and what is too long to be a line is cut."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in whole:
            yield from _pieces(line + b"\n")
        while len(rest) > LONGEST_LINE:
            yield rest[:LONGEST_LINE]
            rest = rest[LONGEST_LINE:]
    if rest:
        yield rest


def _pieces(line: bytes) -> Iterable[bytes]:
    if len(line) <= LONGEST_LINE:
        return (line,)
    return (line[at : at + LONGEST_LINE] for at in range(0, len(line), LONGEST_LINE))


def line_records(line: bytes, number: int = 0, *, prefixes: bool = True) -> Iterator[AnyRecord]:
    """Yield what one line holds: text, records, or text and then a record.

    The colours in a line with a prefix are the launcher's, and no part of a record.
    """
    if not prefixes or (bare := colours.plain(line)) == line:
        yield from _line_records(line, number, prefixes=prefixes)
        return
    at = 0
    coloured = colours.Coloured(line)
    for each in _line_records(bare, number, prefixes=prefixes):
        raw = each.raw.encode("utf-8", "surrogateescape")
        at = bare.find(raw, at) + len(raw)
        if isinstance(each, Text):
            structs.force_setattr(each, "raw", _text(coloured.part(at - len(raw), at)))
        yield each


def _line_records(line: bytes, number: int, *, prefixes: bool) -> Iterator[AnyRecord]:
    """Yield what a line holds. Each byte is read but a few times, however many records share a line."""
    leaf = markers.starts().get(line[: markers.LENGTH])
    if leaf is not None and line.endswith(b"\n"):
        record = leaf.parse(_text(line.rstrip(b"\r\n")))
        if record is not None:
            yield _placed(record, number, NO_PREFIX)
            return
    places = markers.markers(line)
    body = line.rstrip(b"\r\n")
    at = unread = 0  # where what was not given yet begins, and the first marker behind
    for index, place in enumerate(places):
        following = places[index + 1] if index + 1 < len(places) else None
        record, end = _record(body, place, following)
        if record is None:
            continue
        text = line[at : place.at]
        yield from _before(text, places[unread], places[unread].at - at, number, prefixes)
        before = (prefix(text) if prefixes else None) or NO_PREFIX
        if end == len(body) and not line.endswith(b"\n"):
            yield _malformed(record.raw, place.tracer, number, before, _CUT)
            return
        yield _placed(record, number, before)
        if end == len(body):
            return
        at, unread, prefixes = end, index + 1, False
    if unread == len(places):
        yield Text(raw=_text(line[at:]), line_number=number)
    else:
        first = places[unread]
        yield _unread(line[at:], first.tracer, first.at - at, number, prefixes)


def _record(body: bytes, place: Marker, following: Marker | None) -> tuple[AnyRecord | None, int]:
    """Return the record that begins at a marker, and where it ends; the program's text may go on there.

    No record holds another marker, as the grammars see to; a line right behind another tore that one.
    """
    tracer = markers.tracer(place.tracer)
    text = _text(body[place.at : following.end if following else len(body)])
    if following is None and (record := tracer.parse(text)) is not None:
        return record, len(body)
    split = tracer.split(text)
    if split is None:
        return None, 0
    record, rest = split
    end = place.at + len(record.raw.encode("utf-8", "surrogateescape"))
    if not rest or (following is not None and end >= following.at):
        return None, 0
    return record, end


def _unread(line: bytes, tracer: str, at: int, number: int, prefixes: bool) -> Malformed | Text:
    """Return what a line is that has markers, the first at `at`, and no record."""
    before = prefix(line[:at]) if prefixes or not at else None
    if before is None:
        return Text(raw=_text(line), line_number=number)
    body = _text(line[at:].rstrip(b"\r\n"))
    whole = line.endswith(b"\n")
    return _malformed(body, tracer, number, before, _FOREIGN if whole else _CUT)


def _before(
    text: bytes, first: Marker, at: int, number: int, prefixes: bool
) -> Iterator[AnyRecord]:
    """Yield what stands before a record: nothing, a torn line, or the program's text.

    first: the first marker in the line; at: where in the text it stands, or behind it.
    """
    if not text or (prefixes and prefix(text) is not None):
        return
    if at < len(text) and (not at or (prefixes and prefix(text[:at]) is not None)):
        before = prefix(text[:at]) or NO_PREFIX
        yield _malformed(_text(text[at:]), first.tracer, number, before, _CUT)
        return
    yield Text(raw=_text(text), line_number=number)


def _malformed(raw: str, tracer: str, number: int, before: Prefix, reason: str) -> Malformed:
    return Malformed(
        tracer=tracer,
        raw=raw,
        line_number=number,
        prefix=before.text,
        source=before.source,
        process=before.process,
        thread=before.thread,
        reason=reason,
    )


def _placed(record: AnyRecord, number: int, before: Prefix) -> AnyRecord:
    """Add to a record where it was found, and what its prefix tells."""
    if before is NO_PREFIX:
        structs.force_setattr(record, "line_number", number)  # it is new, and nobody else's yet
        return record
    more: dict[str, int | str] = {
        "line_number": number,
        "prefix": before.text,
        "source": before.source,
    }
    if before.process is not None:
        more["process"] = before.process
    if before.thread is not None:
        more["thread"] = before.thread
    if before.end_ns is not None and record.start_ns is None:
        more["start_ns"] = before.end_ns - round(record.duration_ns or 0)
        more["clock"] = "epoch"
    return structs.replace(record, **more)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def joined(parts: Iterable[AnyRecord]) -> bytes:
    """Return the program's own output: all Text, byte for byte."""
    texts = (part.raw for part in parts if isinstance(part, Text))
    return b"".join(text.encode("utf-8", "surrogateescape") for text in chain(texts))
