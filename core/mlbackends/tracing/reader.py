"""Logs as records: a program's output with the lines of MKL and oneDNN anywhere in it.

A library's line begins at its marker, which may be anywhere in a line, and goes to the line's end, since
programs print without ending their own lines. What precedes it is either a launcher's prefix, which
goes into the record, or the program's text. Only text that matches the grammar from the marker to the
end becomes a record: text that mentions markers is text. A line that begins with a marker and does not
match is `Malformed`, and so is a truncated last line. Program text right behind a call is text as far
as it can be distinguished from the call's own numbers.

Colours are dropped everywhere, and the end of a library's line; else the program's text comes out byte
for byte: the `raw` of all Text records, one behind the other.

Most lines of a log are calls that came before with another time. The tracer cuts a line to what
repeats, its key; only the first line of each key is read with the grammar.
"""

import re
from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from functools import cache
from io import BytesIO
from types import ModuleType
from typing import Any

from msgspec import structs

from mlbackends.base.registry import load, names
from mlbackends.model.trace import AnyRecord, Call, Malformed, Text
from mlbackends.tracing.prefixes import NO_PREFIX, Prefix, plain, prefix
from mlbackends.tracing.sources import Source, joined_source

FORMATS = "mlbackends.tracing.formats"
#: The number of bytes that distinguish the markers of all tracers.
MARK_LENGTH = 12
#: Longer lines are cut into pieces: no library prints such a line.
LONGEST_LINE = 1 << 20
#: A line cut by its tracer: key, duration and start in nanoseconds.
Cut = tuple[Hashable, float | None, int | None]
_TRUNCATED = "the line is cut off"
_FOREIGN = "the line begins as one of the library's and goes on as none that is known"
_MOST_CALLS = 50_000
#: The first record of each key; its signature is that of all.
_calls: dict[Hashable, Call] = {}


@cache
def tracers() -> dict[bytes, tuple[str, ModuleType]]:
    """Return the names and modules of tracers by the start of their markers, MARK_LENGTH bytes of each."""
    return {
        mark[:MARK_LENGTH]: (name, load(FORMATS, name))
        for name in names(FORMATS)
        for mark in load(FORMATS, name).MARKERS
    }


@cache
def marker_search() -> "tuple[re.Pattern[bytes], tuple[bytes, ...]]":
    """Return what finds a marker of any tracer, and the ends of all markers: these few are found fast."""
    marks = [mark for name in names(FORMATS) for mark in load(FORMATS, name).MARKERS]
    return re.compile(b"|".join(map(re.escape, marks))), tuple({mark[-8:] for mark in marks})


def read(name: str) -> Iterator[AnyRecord]:
    """Yield the records of a log; "-" is standard input. Raises BadInput where it cannot be opened.

    Damage, as of a compressed file that was cut off, ends the records; a caller that reports damage
    makes the Source itself.
    """
    return records(Source(name).chunks())


def records(chunks: Iterable[bytes], *, log: str = "") -> Iterator[AnyRecord]:
    """Yield the records of UTF-8 text that comes in pieces, cut anywhere.

    log: what to call it in the records' `source`, where there are several.
    """
    for number, line in enumerate(lines(chunks), 1):
        found = line_records(line, number)
        yield from (with_log(record, log) for record in found) if log else found


def with_log(record: AnyRecord, log: str) -> AnyRecord:
    """Put the name of a log, if it has one, into the source of a record that is new."""
    if log:
        structs.force_setattr(record, "source", joined_source(log, record.source))
    return record


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends, if any; lines that are too long are cut."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        whole = BytesIO(data).readlines()
        rest = whole.pop() if whole and not data.endswith(b"\n") else b""
        if len(data) <= LONGEST_LINE:
            yield from whole
            continue
        for line in whole:
            yield from (line[at : at + LONGEST_LINE] for at in range(0, len(line), LONGEST_LINE))
        while len(rest) > LONGEST_LINE:
            yield rest[:LONGEST_LINE]
            rest = rest[LONGEST_LINE:]
    if rest:
        yield rest


def parsed(tracer: Any, line: bytes) -> AnyRecord | None:
    """Return the record of a whole line, from its marker on and without its end; None if it is none."""
    cut: Cut | None = tracer.cut(line)
    text = _text(line)
    if cut is not None and cut[1] is not None:
        equal = _calls.get(cut[0])
        if equal is not None:
            clock = "" if cut[2] is None else "epoch"
            return structs.replace(equal, raw=text, duration_ns=cut[1], start_ns=cut[2], clock=clock)  # type: ignore[return-value]
    found: AnyRecord | None = tracer.parse(text)
    if cut is not None and isinstance(found, Call) and is_cut_right(found, cut):
        if len(_calls) >= _MOST_CALLS:
            _calls.clear()
        _calls[cut[0]] = copy(found)
    return found


def is_cut_right(record: AnyRecord, cut: Cut) -> bool:
    """Return whether a line was cut to what all such lines have; decimal commas mislead a tracer's cut."""
    key, duration, start = cut
    if isinstance(record, Text | Malformed) or (record.duration_ns, record.start_ns) != (
        duration,
        start,
    ):
        return False
    is_named = duration is not None and isinstance(key, bytes) and isinstance(record, Call)
    return not is_named or key == record.key.encode("utf-8", "surrogateescape")


def record_length(line: bytes) -> int:
    """Return how many bytes of a line are a record, 0 for none; text may follow it.

    line: from its marker on, without its end.
    """
    _, leaf = tracers()[line[:MARK_LENGTH]]
    body = line.rstrip(b"\r")
    if parsed(leaf, body) is not None:
        return len(line)
    split = leaf.split(_text(body))
    return len(split[0].raw.encode("utf-8", "surrogateescape")) if split else 0


def line_records(line: bytes, number: int = 0) -> Iterator[AnyRecord]:
    """Yield what a line holds: text, records, or text and then a record.

    Each byte is read but a few times, however many records share a line.
    """
    line = plain(line)
    tracer = tracers().get(line[:MARK_LENGTH])
    if tracer is not None and line.endswith(b"\n"):
        record = parsed(tracer[1], line.rstrip(b"\r\n"))
        if record is not None:
            structs.force_setattr(record, "line_number", number)  # it is new, and nobody else's yet
            yield record
            return
    pattern, endings = marker_search()
    places = list(pattern.finditer(line)) if any(ending in line for ending in endings) else []
    body = line.rstrip(b"\r\n")
    at = unread = 0  # where what was not given yet begins, and the first marker behind

    def prefix_until(end: int) -> Prefix | None:
        # Behind a record no launcher puts anything.
        return prefix(line[at:end]) if at in {0, end} else None

    for index, place in enumerate(places):
        start = place.start()
        following = places[index + 1] if index + 1 < len(places) else None
        record, end = _record(body, place, following)
        if record is None:
            continue
        before = prefix_until(start)
        if before is None:  # a torn line, or the program's text
            torn = places[unread].start()
            if torn < start and (named := prefix_until(torn)):
                yield _malformed(places[unread], line[torn:start], number, named, _TRUNCATED)
            else:
                yield Text(raw=_text(line[at:start]), line_number=number)
            before = NO_PREFIX
        if end == len(body) and not line.endswith(b"\n"):
            yield _malformed(place, body[start:], number, before, _TRUNCATED)
            return
        yield _placed(record, number, before)
        if end == len(body):
            return
        at, unread = end, index + 1
    if unread < len(places):  # there are markers, and no record
        start = places[unread].start()
        if (before := prefix_until(start)) is not None:
            reason = _FOREIGN if line.endswith(b"\n") else _TRUNCATED
            yield _malformed(places[unread], body[start:], number, before, reason)
            return
    yield Text(raw=_text(line[at:]), line_number=number)


def _record(
    body: bytes, place: re.Match[bytes], following: re.Match[bytes] | None
) -> tuple[AnyRecord | None, int]:
    """Return the record that begins at a marker, and where it ends; the program's text may go on there."""
    # No record holds another marker, as the grammars see to; a line right behind another tore that one.
    leaf = tracers()[place[0][:MARK_LENGTH]][1]
    if following is None and (record := parsed(leaf, body[place.start() :])) is not None:
        return record, len(body)
    split = leaf.split(_text(body[place.start() : following.end() if following else len(body)]))
    if split is None:
        return None, 0
    record, rest = split
    end = place.start() + len(record.raw.encode("utf-8", "surrogateescape"))
    if not rest or (following is not None and end >= following.start()):
        return None, 0
    return record, end


def _malformed(place: re.Match[bytes], raw: bytes, number: int, before: Prefix, reason: str) -> AnyRecord:
    tracer = tracers()[place[0][:MARK_LENGTH]][0]
    return _placed(Malformed(tracer=tracer, raw=_text(raw), reason=reason), number, before)


def _placed(record: AnyRecord, number: int, before: Prefix) -> AnyRecord:
    """Add a new record's line number and the facts in its prefix."""
    more: dict[str, int | str | None] = {"line_number": number}
    if before is not NO_PREFIX:
        more |= {"prefix": before.text, "source": before.source}
        if before.process is not None:
            more["process"] = before.process
        if before.thread is not None:
            more["thread"] = before.thread
        if before.end_ns is not None and record.start_ns is None and record.kind != "malformed":
            more["start_ns"] = before.end_ns - round(record.duration_ns or 0)
            more["clock"] = "epoch"
    for name, value in more.items():
        structs.force_setattr(record, name, value)
    return record


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
