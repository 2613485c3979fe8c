"""The output of engines, as envelopes: one for each report, and one for each that did not arrive whole.

It reads frames, and records and envelopes as JSON on one line or many, with or without the labels of srun,
pdsh, clush, mpirun, kubectl and Ansible:

    reader = Reader()
    for envelope in reader.read(lines): ...

A line goes through `Reader._line`: labels.py separates the label, a frame goes to `Assembly.add` (frames.py),
and everything else to `Reader._text`. An engine that has the output of each node apart needs none of this: it
creates envelopes itself. The transport's label takes precedence over the name in a report, but a bare number
is not a name. Nothing from a node is trusted: its size is limited, and what cannot be read becomes an
envelope with the error.
"""

import codecs
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mlbackends.base.errors import why_not
from mlbackends.base.patterns import bytes_pattern
from mlbackends.fleet import labels
from mlbackends.fleet.frames import MARK, REPORT_LIMIT, Assembly
from mlbackends.fleet.labels import Line
from mlbackends.model.fleet import ENVELOPE_SCHEMA, Envelope, Status

_TOKEN = bytes_pattern(rb'["\\{}\[\]]')
_BEGINNING = b'{"schema":"backends.'
_SCHEMA = b'"schema": "backends.'
_ENVELOPE = b'{"schema":"backends.envelope/'
#: The end of an envelope's head: the report that begins next belongs to it.
_BEFORE_REPORT = b'"report":'
#: How an object of JSON begins.
_OBJECT = bytes_pattern(rb'\{\s*(?:["}]|$)')
_COLOR = bytes_pattern(rb"\x1b\[[\d;]*[mK]")
_BLOCK = 1 << 20
_LONGEST_LINE = REPORT_LIMIT + (1 << 16)
_LONGEST_ERROR = 200
_MOST_LABELS = 1 << 20


class Head(Struct):
    """The field by which a record is distinguished from other JSON."""

    schema: str = ""


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without newlines; a line that is longer than any report is cut."""
    rest = b""
    is_skipping = False
    while block := file.read(_BLOCK):
        first, *lines = block.removeprefix(codecs.BOM_UTF8).split(b"\n")
        if not is_skipping:
            rest += first
        if lines:
            yield rest.rstrip(b"\r")
            rest, is_skipping = lines.pop(), False
            yield from (line.rstrip(b"\r") for line in lines)
        elif len(rest) > _LONGEST_LINE:
            rest, is_skipping = rest[:_LONGEST_LINE], True
    if last := rest.rstrip(b"\r"):
        yield last


class Text:
    """JSON that comes in pieces. is_too_large: it is longer than any report and was discarded."""

    def __init__(self) -> None:
        self.is_too_large = False
        self._pieces: list[bytes] = []
        self._size = self._depth = 0
        self._in_string = self._is_escaped = False

    def add(self, piece: bytes) -> bool:
        """Add a piece; return whether the text ends with it."""
        self._size += len(piece)
        self._pieces.append(piece)
        if self._size > REPORT_LIMIT:
            self.is_too_large = True
            self._pieces.clear()
        skipped = 0 if self._is_escaped else -1
        for token in _TOKEN.finditer(piece):
            at, sign = token.start(), piece[token.start()]
            if at == skipped:
                continue
            if sign == ord("\\"):
                skipped = at + 1
            elif sign == ord('"'):
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if sign in b"{[" else -1
        self._is_escaped = skipped == len(piece)
        return self._depth <= 0 and not self._in_string

    @property
    def data(self) -> bytes:
        """The text so far."""
        return b"".join(self._pieces)


class _Stream(Struct):
    """What came under one label. text: an unfinished record. failure: the transport's report on the node.

    has_damage: a line had a frame's mark and was not a valid frame. is_whole: a record came whole.
    """

    label: bytes
    is_name: bool
    text: Text | None = None
    last_line: bytes = b""
    has_record: bool = False
    is_whole: bool = False
    has_damage: bool = False
    has_blank: bool = False
    failure: labels.Failure | None = None


class Reader:
    """Reads the lines of one or several sources.

    garbled: how often something was lost whose node is unknown, by what was lost. unchecked: the number of
    JSON records that were put together from labelled pieces. is_by_label: the node of the latest envelope is
    named by a label.
    """

    def __init__(self) -> None:
        self.garbled: Counter[str] = Counter()
        self.unchecked = 0
        self.is_by_label = False
        self._frames = Assembly()
        self._streams: dict[bytes, _Stream] = {}
        self._ansible_host = b""
        self._own_names: set[bytes] = set()
        self._is_of_node = False

    def read(self, lines: Iterable[bytes], name: str = "", *, is_of_node: bool = True) -> Iterator[Envelope]:
        """Yield an envelope for each record of a source, and at the end for each incomplete one.

        lines: without newlines. name: the node's name, for records without one. is_of_node: all records are
        of that node; otherwise only the first one without a name.
        """
        self._is_of_node = bool(name) and is_of_node
        for envelope in chain(chain.from_iterable(map(self._line, lines)), self._end()):
            if envelope.node or not name:
                yield envelope
            else:
                yield replace(envelope, node=name)
                name = name if is_of_node else ""

    def _line(self, line: bytes) -> list[Envelope]:
        """Return the envelopes that a line completes."""
        if b"\x1b[" in line:  # colours of clush or Ansible; JSON escapes those of a node
            line = _COLOR.sub(b"", line)
        mark = line.find(MARK)
        if mark < 0:
            if line[:1] == b"{" and line[-1:] == b"}" and not self._ansible_host:
                return self._text(Line(b"", False, line))
            if result := labels.ansible_result(line):
                labelled, failure = result
                self._ansible_host = labelled.label
                self._stream(labelled).failure = failure
                return self._text(labelled) if labelled.text else []
            if failures := labels.failures_in(line):
                for failure in failures:
                    stream = self._stream(Line(failure.node, True, b""))
                    if stream.failure is None or not stream.failure.is_reason:
                        stream.failure = failure
                return []
        labelled = labels.split(line)
        if 0 <= mark < len(line) - len(labelled.text):  # the label is text in front of a frame
            labelled = Line(b"", False, line)
        if not labelled.label and self._ansible_host:
            labelled = Line(self._ansible_host, True, line)
        if mark < 0:
            return self._text(labelled)
        damaged = self._frames.damaged
        envelopes = self._named(self._frames.add(line, labelled.label), labelled)
        is_damaged = self._frames.damaged > damaged
        stream = self._stream(labelled)
        if is_damaged and (stream.text is not None or _BEGINNING in labelled.text):
            self._frames.damaged = damaged  # a record whose text contains a frame's mark
            return envelopes + self._text(labelled)
        if not labelled.label:
            self._own_names.update(envelope.node.encode() for envelope in envelopes)
        elif is_damaged:
            stream.has_damage = True
        else:
            stream.has_record = True
            stream.is_whole |= bool(envelopes)
        return envelopes

    def _stream(self, line: Line) -> _Stream:
        stream = self._streams.get(line.label)
        if stream is None:
            stream = _Stream(line.label, line.is_name)
            if len(self._streams) < _MOST_LABELS:
                self._streams[line.label] = stream
        return stream

    def _text(self, line: Line) -> list[Envelope]:
        """Read a line without frames: a record, a piece of one, or other text."""
        stream, text = self._stream(line), line.text
        if line.may_have_blank:
            if (stream.text is None and text[:2] in (b" {", b"{", b"{}")) or text[:1] == b"{":
                stream.has_blank = text[:1] == b" "
            text = text[1:] if stream.has_blank else text
        found: list[Envelope] = []
        if stream.text is not None and text.startswith(_BEGINNING):
            begins_anew = text.startswith(_ENVELOPE)
            if begins_anew or not stream.text.data.endswith(_BEFORE_REPORT):
                found = self._lost(stream)  # the end of the previous record is missing
        if stream.text is None:
            if not _OBJECT.match(text):
                stream.last_line = text.strip()[:_LONGEST_ERROR] or stream.last_line
                # A record may follow other text, such as a time; pieces of one are lost.
                at = line.text.find(_BEGINNING)
                if at < 0 and _SCHEMA not in line.text:
                    return found
                if at >= 0 and (envelopes := self._record(line.text[at:], line)) is not None:
                    return found + envelopes
                stream.text = Text()
                return found + self._lost(stream)
            if text[-1:] == b"}" and (envelopes := self._record(text, line)) is not None:
                return found + envelopes
            stream.text = Text()
        if not stream.text.add(text):
            return found
        if (envelopes := self._record(stream.text.data, line)) is None:
            return found + self._lost(stream)
        stream.text = None
        if stream.label:
            self.unchecked += len(envelopes)
        return found + envelopes

    def _record(self, data: bytes, line: Line) -> list[Envelope] | None:
        """Return the envelope of a record, [] for other JSON, None for text that is not JSON."""
        try:
            schema = msgspec.json.decode(data, type=Head).schema
            if not schema.startswith("backends."):
                return []
            envelope = Envelope(report=Raw(data))
            if schema == ENVELOPE_SCHEMA:
                envelope = msgspec.json.decode(data, type=Envelope)
        except msgspec.ValidationError as failure:
            if _BEGINNING not in data[:100]:
                return []
            envelope = Envelope(status=Status.ERROR, error=f"it is not an envelope: {why_not(failure)}")
        except RecursionError:
            if _BEGINNING not in data[:100]:
                return []
            envelope = Envelope(status=Status.ERROR, error="its report is nested too deep")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        stream = self._stream(line)
        stream.has_record = stream.is_whole = True
        return self._named([envelope], line)

    def _named(self, envelopes: Iterable[Envelope], line: Line) -> list[Envelope]:
        """Return envelopes with the name of their node: the label if it is a name, otherwise their own."""
        label = line.label.decode(errors="replace") if labels.may_be_node(line.label) else ""
        if not line.is_name and "/" in label:  # pod/NAME/CONTAINER
            label = label.removeprefix("pod/").partition("/")[0]
        self.is_by_label = bool(label) and line.is_name
        return [
            envelope if envelope.node and not line.is_name else replace(envelope, node=label)
            for envelope in envelopes
        ]

    def _lost(self, stream: _Stream) -> list[Envelope]:
        """Return an error envelope for an incomplete record; one without a name is counted as garbled."""
        assert stream.text is not None
        is_too_large, data, stream.text = stream.text.is_too_large, stream.text.data, None
        if data and b'"schema"' not in data[:_LONGEST_ERROR]:  # JSON of something else
            stream.last_line = data[:_LONGEST_ERROR]
            return []
        stream.has_record = True
        if not (stream.label and labels.may_be_node(stream.label)) and not self._is_of_node:
            self.garbled["records of unnamed nodes"] += 1
            return []
        error = "its report is incomplete; --format frame avoids that"
        envelope = Envelope(status=Status.GARBLED, error=error)
        if is_too_large:
            error = f"its report is larger than {REPORT_LIMIT >> 20} MiB"
            envelope = Envelope(status=Status.ERROR, error=error)
        line = Line(stream.label, stream.is_name, b"")
        return self._named([with_failure(envelope, stream.failure)], line)

    def _end(self) -> Iterator[Envelope]:
        """Yield an envelope for each incomplete message or record, and for each label without a record."""
        for label, envelope in self._frames.incomplete():
            stream = self._streams.get(label or envelope.node.encode())
            if stream is not None:
                stream.has_record = True
                envelope = with_failure(envelope, stream.failure)
            is_name = bool(label) and stream is not None and stream.is_name
            yield from self._named([envelope], Line(label, is_name, b""))
        if self._frames.damaged:
            self.garbled["damaged frames"] += self._frames.damaged
        # In a node's own file, what precedes a colon is a node only if the file is the log of a transport.
        has_labels = not self._is_of_node or any(
            stream.has_record or stream.failure for stream in self._streams.values() if stream.label
        )
        for stream in self._streams.values():
            if stream.text is not None:
                yield from self._lost(stream)
            if not stream.label or not has_labels:
                continue
            if not stream.has_record and stream.label not in self._own_names:
                line = Line(stream.label, stream.is_name, b"")
                yield from self._named(_without_record(stream), line)
            elif stream.failure and (stream.is_whole or stream.label in self._own_names):
                # It printed a report, and failed all the same.
                failed = Envelope(status=stream.failure.status, error=stream.failure.error)
                yield from self._named([failed], Line(stream.label, stream.is_name, b""))
        self._frames, self._ansible_host = Assembly(), b""
        self._streams.clear()
        self._own_names.clear()


def _without_record(stream: _Stream) -> Iterator[Envelope]:
    """Yield why no record came under a label; nothing for a label that is not a node."""
    text = stream.last_line.decode(errors="replace")
    if stream.failure:
        error = ": ".join(filter(None, (stream.failure.error, text)))
        yield Envelope(status=stream.failure.status, error=error)
    elif stream.has_damage:
        yield Envelope(status=Status.GARBLED, error="no complete frame of its report arrived")
    elif labels.may_be_node(stream.label):
        status = labels.status_of(text)
        if status is Status.TIMEOUT and not text.startswith("exit code "):
            status = Status.ERROR
        error = f"it printed no report but: {text}" if text else "it printed no report"
        yield Envelope(status=status, error=error)


def with_failure(envelope: Envelope, failure: labels.Failure | Envelope | None) -> Envelope:
    """Return an incomplete report with the transport's reason, which explains it if the node was lost."""
    if failure is None:
        return envelope
    if failure.status is Status.ERROR:
        return replace(envelope, error=f"{envelope.error}; {failure.error}")
    return replace(envelope, status=failure.status, error=failure.error)
