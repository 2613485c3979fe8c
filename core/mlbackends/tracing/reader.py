"""Logs as records: a program's output with the lines of MKL and oneDNN anywhere in it.

A line of a library begins with its marker, wherever that stands, and goes to the line's end, since
programs print without ending their own lines. What stands before it is a launcher's prefix, and
then goes into the record, or else the program's text. Only what keeps to the grammar from the marker
to the end is taken: text that talks about markers is text. A line that begins with a marker and goes
on as something else is `Malformed`, and so is the last one of a log that ends before it does. Text of
the program right behind a call is text, as far as it can be distinguished by the call's own numbers.

Colours around and in a line of a library are dropped, like the line's end.
Program text comes out byte for byte: the `raw` of all Text records, one behind the other.

Most lines of a log are calls that came before with another time. The tracer cuts a line to what
repeats, its key; only the first line of each key is read with the grammar.
"""

import re
from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from functools import cache
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

from msgspec import structs

from mlbackends.model.registry import load, names
from mlbackends.model.trace import AnyRecord, Call, Malformed, Primitive, Text
from mlbackends.tracing.prefixes import NO_PREFIX, Coloured, Prefix, plain, prefix
from mlbackends.tracing.sources import Source, joined_source

FORMATS = "mlbackends.tracing.formats"
MARK_LENGTH = 12
"""So many bytes tell the markers of all tracers apart."""
LONGEST_LINE = 1 << 20
"""So many bytes without a line's end are cut: no library prints such a line."""
Cut = tuple[Hashable, float | None, int | None]
"""A line cut by its tracer: key, duration and start in nanoseconds."""
_TRUNCATED = "the line is cut off"
_FOREIGN = "the line begins as one of the library's and goes on as none that is known"
_MOST_KEYS = 4096
_calls: dict[Hashable, Call] = {}
"""The first record of each key; its signature is that of all."""
_fronts: dict[bytes, Primitive] = {}
"""The same by all that stands before the sizes: programs call one thing with many sizes."""


class Marker(NamedTuple):
    """A marker in a line. at, end: from where to where."""

    at: int
    end: int
    tracer: str


@cache
def tracers() -> dict[bytes, tuple[str, ModuleType]]:
    """Return the names and modules of tracers by the start of their markers, MARK_LENGTH bytes of each."""
    return {
        mark[:MARK_LENGTH]: (name, load(FORMATS, name))
        for name in names(FORMATS)
        for mark in load(FORMATS, name).MARKERS
    }


@cache
def marker_pattern() -> "re.Pattern[bytes]":
    """Return what finds a marker of any tracer."""
    marks = (re.escape(mark) for name in names(FORMATS) for mark in load(FORMATS, name).MARKERS)
    return re.compile(b"|".join(marks))


@cache
def _endings() -> tuple[bytes, ...]:
    """Return the last eight bytes of all markers: looking for these few is fast."""
    marks = (mark for name in names(FORMATS) for mark in load(FORMATS, name).MARKERS)
    return tuple({mark[-8:] for mark in marks})


def read(name: str, file: BinaryIO | None = None) -> Iterator[AnyRecord]:
    """Yield the records of a log; "-" is standard input. Raises BadInput where it cannot be opened.

    Damage, as of a compressed file that was cut off, ends the records; a caller that reports damage
    makes the Source itself.
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
            if len(line) < LONGEST_LINE:
                yield line + b"\n"
                continue
            line += b"\n"
            yield from (line[at : at + LONGEST_LINE] for at in range(0, len(line), LONGEST_LINE))
        while len(rest) > LONGEST_LINE:
            yield rest[:LONGEST_LINE]
            rest = rest[LONGEST_LINE:]
    if rest:
        yield rest


def line_records(line: bytes, number: int = 0, *, prefixes: bool = True) -> Iterator[AnyRecord]:
    """Yield what one line holds: text, records, or text and then a record.

    The colours in a line with a prefix are the launcher's, and no part of a record.
    """
    if not prefixes or (bare := plain(line)) == line:
        yield from _line_records(line, number, prefixes=prefixes)
        return
    at = 0
    coloured = Coloured(line)
    for each in _line_records(bare, number, prefixes=prefixes):
        raw = each.raw.encode("utf-8", "surrogateescape")
        at = bare.find(raw, at) + len(raw)
        if isinstance(each, Text):
            structs.force_setattr(each, "raw", _text(coloured.part(at - len(raw), at)))
        yield each


def parsed(leaf: Any, line: bytes) -> AnyRecord | None:
    """Return the record of a whole line, from its marker on and without its end; None if it is none."""
    cut: Cut | None = leaf.cut(line)
    text = _text(line)
    like = None if cut is None or cut[1] is None else _calls.get(cut[0]) or _resized(leaf, cut[0])
    if cut is not None and like is not None:
        record = copy(like)  # it is new, and nobody else's yet
        structs.force_setattr(record, "raw", text)
        structs.force_setattr(record, "duration_ns", cut[1])
        structs.force_setattr(record, "start_ns", cut[2])
        structs.force_setattr(record, "clock", "" if cut[2] is None else "epoch")
        return record  # type: ignore[return-value]
    found: AnyRecord | None = leaf.parse(text)
    if cut is not None and isinstance(found, Call) and is_cut_right(found, cut):
        first = copy(found)
        _keep(_calls, cut[0], first)
        if isinstance(first, Primitive) and first.signature.problem:
            _keep(_fronts, leaf.front(cut[0]), first)
    return found


def _keep(kept: dict[Any, Any], key: Hashable, record: Call) -> None:
    if len(kept) >= _MOST_KEYS:
        kept.clear()
    kept[key] = record


def _resized(leaf: Any, key: Hashable) -> Call | None:
    """Return a record like that of a call that differs from one that was read in its sizes alone."""
    front = leaf.front(key)
    like = _fronts.get(front) if front else None
    if like is None:
        return None
    record = structs.replace(like, signature=leaf.resized(like.signature, key))
    _keep(_calls, key, record)
    return record


def is_resized(line: bytes, key: Hashable) -> bool:
    """Tell whether a line, cut to a key, differs in its sizes alone from a primitive that was read."""
    front = tracers()[line[:MARK_LENGTH]][1].front(key)
    return bool(front) and front in _fronts


def is_cut_right(record: AnyRecord, cut: Cut) -> bool:
    """Tell whether a line was cut to what all such lines have; decimal commas mislead a tracer's cut."""
    key, duration, start = cut
    if isinstance(record, Text | Malformed):
        return False
    if (record.duration_ns, record.start_ns) != (duration, start):
        return False
    if not isinstance(record, Call):
        return duration is None
    if duration is None:
        return False
    return not isinstance(key, bytes) or key == record.key.encode("utf-8", "surrogateescape")


def located(line: bytes) -> tuple[bytes, int, Cut | None] | None:
    """Return what stands before a line of a library, where its marker is, and the line cut.

    The end of a capture's stamp is left out, and counts as the call's. None for a line without a marker.
    """
    tracer = tracers().get(line[:MARK_LENGTH])
    if tracer is not None:
        return b"", 0, tracer[1].cut(line)
    found = marker_pattern().search(line)
    if found is None:
        return None
    at = found.start()
    cut: Cut | None = tracers()[line[at : at + MARK_LENGTH]][1].cut(line[at:])
    before, has_end, end = line[:at].rpartition(b" end ")
    if not has_end or not end[:-2].isdigit() or end[-2:] != b"] " or len(end) > 22:
        return line[:at], at, cut
    if cut is not None and cut[1] is not None and cut[2] is None:
        cut = cut[0], cut[1], int(end[:-2]) - round(cut[1])
    return before, at, cut


def record_length(line: bytes) -> int:
    """Return how many bytes of a line are a record, 0 for none; text may stand behind it.

    line: from its marker on, without its end.
    """
    _, leaf = tracers()[line[:MARK_LENGTH]]
    body = line.rstrip(b"\r")
    if parsed(leaf, body) is not None:
        return len(line)
    split = leaf.split(_text(body))
    return len(split[0].raw.encode("utf-8", "surrogateescape")) if split else 0


def _line_records(line: bytes, number: int, *, prefixes: bool) -> Iterator[AnyRecord]:
    """Yield what a line holds. Each byte is read but a few times, however many records share a line."""
    tracer = tracers().get(line[:MARK_LENGTH])
    if tracer is not None and line.endswith(b"\n"):
        record = parsed(tracer[1], line.rstrip(b"\r\n"))
        if record is not None:
            yield _placed(record, number, NO_PREFIX)
            return
    places = _markers(line)
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
            yield _malformed(record.raw, place.tracer, number, before, _TRUNCATED)
            return
        yield _placed(record, number, before)
        if end == len(body):
            return
        at, unread, prefixes = end, index + 1, False
    if unread == len(places):
        yield Text(raw=_text(line[at:]), line_number=number)
        return
    # There are markers, and no record.
    first = places[unread]
    text = line[at : first.at]
    named = prefix(text) if prefixes or not text else None
    if named is None:
        yield Text(raw=_text(line[at:]), line_number=number)
    else:
        reason = _FOREIGN if line.endswith(b"\n") else _TRUNCATED
        yield _malformed(_text(body[first.at :]), first.tracer, number, named, reason)


def _markers(line: bytes) -> list[Marker]:
    """Return all markers in a line, in their order; no two overlap."""
    if not any(ending in line for ending in _endings()):
        return []
    return [
        Marker(found.start(), found.end(), tracers()[found[0][:MARK_LENGTH]][0])
        for found in marker_pattern().finditer(line)
    ]


def _record(body: bytes, place: Marker, following: Marker | None) -> tuple[AnyRecord | None, int]:
    """Return the record that begins at a marker, and where it ends; the program's text may go on there.

    No record holds another marker, as the grammars see to; a line right behind another tore that one.
    """
    leaf = load(FORMATS, place.tracer)
    if following is None and (record := parsed(leaf, body[place.at :])) is not None:
        return record, len(body)
    split = leaf.split(_text(body[place.at : following.end if following else len(body)]))
    if split is None:
        return None, 0
    record, rest = split
    end = place.at + len(record.raw.encode("utf-8", "surrogateescape"))
    if not rest or (following is not None and end >= following.at):
        return None, 0
    return record, end


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
        yield _malformed(_text(text[at:]), first.tracer, number, before, _TRUNCATED)
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


def program_text(parts: Iterable[AnyRecord]) -> bytes:
    """Return the program's own output: all Text, byte for byte."""
    texts = (part.raw for part in parts if isinstance(part, Text))
    return b"".join(text.encode("utf-8", "surrogateescape") for text in texts)
