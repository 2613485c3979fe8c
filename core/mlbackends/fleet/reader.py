"""Whatever engines print, as envelopes: one for each report that came, and for each that did not come whole.

Read are frames, and records and envelopes as JSON, on one line or many, behind the labels of srun, pdsh,
clush, mpirun, kubectl and Ansible or without any:

    reader = Reader()
    for envelope in reader.read(lines): ...

An engine that has the output of each node apart needs none of this: it makes envelopes itself. The label of
the transport comes before the name in a report; a bare number is no name. Nothing from a node is
trusted: it is limited in size, and what cannot be read is an envelope that says so.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mlbackends.fleet import labels
from mlbackends.fleet.frames import MARK, REPORT_LIMIT, Assembly
from mlbackends.fleet.labels import Line
from mlbackends.model.fleet import ENVELOPE_SCHEMA, Envelope, Status

_TOKEN = re.compile(rb'["\\{}\[\]]')
_BEGINNING = b'{"schema":"backends.'
_SCHEMA = b'"schema": "backends.'
_ENVELOPE = b'{"schema":"backends.envelope/'
#: How the head of an envelope ends: the report that then begins is its own.
_BEFORE_REPORT = b'"report":'
_COLOR = re.compile(rb"\x1b\[[\d;]*[mK]")
_BLOCK = 1 << 20
_LONGEST_LINE = REPORT_LIMIT + (1 << 16)
_LONGEST_ERROR = 200
_MOST_LABELS = 1 << 20


class Head(Struct):
    """The field by which a record is distinguished from other JSON."""

    schema: str = ""


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without their ends; of one that no report is as long as, the beginning."""
    rest = b""
    is_skipping = False
    while block := file.read(_BLOCK):
        first, *lines = block.split(b"\n")
        if not is_skipping:
            rest += first
        if lines:
            yield rest.rstrip(b"\r")
            rest, is_skipping = lines.pop(), False
            yield from (line.rstrip(b"\r") for line in lines)
        elif len(rest) > _LONGEST_LINE:
            rest, is_skipping = rest[:_LONGEST_LINE], True
    if rest:
        yield rest.rstrip(b"\r")


class Text:
    """JSON that comes in pieces. is_too_large: it is longer than any report, and was not kept."""

    def __init__(self) -> None:
        self.is_too_large = False
        self._pieces: list[bytes] = []
        self._size = self._depth = 0
        self._in_string = self._is_escaped = False

    def add(self, piece: bytes) -> bool:
        """Add a piece; tell whether the text ends with it."""
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
    """What came under one label. text: a record that has begun. word: what the transport says of the node.

    has_damage: a line with a frame's mark was no whole frame.
    """

    label: bytes
    is_name: bool
    text: Text | None = None
    last_line: bytes = b""
    has_record: bool = False
    has_damage: bool = False
    has_blank: bool = False
    word: labels.Word | None = None


class Reader:
    """Reads the lines of one or several sources.

    garbled: what was lost that no node can be named for, by what it was, and how often. unchecked: how many
    records as JSON were put together from labelled pieces.
    """

    def __init__(self) -> None:
        self.garbled: Counter[str] = Counter()
        self.unchecked = 0
        self._frames = Assembly()
        self._streams: dict[bytes, _Stream] = {}
        self._of_ansible = b""
        self._own_names: set[bytes] = set()
        self._is_of_node = False

    def read(
        self, lines: Iterable[bytes], name: str = "", *, is_of_node: bool = True
    ) -> Iterator[Envelope]:
        """Yield an envelope for each record of a source, and for what is no whole record at its end.

        lines: without their ends. name: of a node, for a record that nothing else names. is_of_node: all
        records are of that node; else the first that has no name.
        """
        self._is_of_node = bool(name) and is_of_node
        for envelope in self._envelopes(lines):
            if envelope.node or not name:
                yield envelope
            else:
                yield replace(envelope, node=name)
                name = name if is_of_node else ""

    def _envelopes(self, lines: Iterable[bytes]) -> Iterator[Envelope]:
        for line in lines:
            yield from self._line(line)
        yield from self._end()

    def _line(self, line: bytes) -> list[Envelope]:
        if b"\x1b[" in line:  # of clush or Ansible; JSON escapes what a node has
            line = _COLOR.sub(b"", line)
        at = line.find(MARK)
        if at >= 0:
            return self._framed(line, at)
        if line[:1] == b"{" and line[-1:] == b"}" and not self._of_ansible:
            return self._text(Line(b"", False, line))
        if found := labels.of_ansible(line):
            split, word = found
            self._of_ansible = split.label
            self._stream(split).word = word
            return self._text(split) if split.text else []
        if words := labels.own_words(line):
            for word in words:
                self._stream(Line(word.node, True, b"")).word = word
            return []
        split = labels.split(line)
        if not split.label and self._of_ansible:
            split = Line(self._of_ansible, True, line)
        return self._text(split)

    def _framed(self, line: bytes, at: int) -> list[Envelope]:
        """Take in a line that has the mark of a frame, which the text of a record may have too."""
        split = labels.split(line) if at else Line(b"", False, line)
        if at < len(line) - len(split.text):
            split = Line(b"", False, line)
        if not split.label and self._of_ansible:
            split = Line(self._of_ansible, True, line)
        damaged = self._frames.damaged
        found = self._named(self._frames.add(line, split.label), split)
        stream = self._streams.get(split.label)
        has_text = _BEGINNING in split.text or (stream is not None and stream.text is not None)
        if self._frames.damaged > damaged and has_text:
            self._frames.damaged = damaged
            return found + self._text(split)
        if split.label:
            stream = self._stream(split)
            if self._frames.damaged > damaged:
                stream.has_damage = True
            else:
                stream.has_record = True
        else:
            self._own_names.update(each.node.encode() for each in found)
        return found

    def _stream(self, line: Line) -> _Stream:
        stream = self._streams.get(line.label)
        if stream is None:
            stream = _Stream(line.label, line.is_name)
            if len(self._streams) < _MOST_LABELS:
                self._streams[line.label] = stream
        return stream

    def _text(self, line: Line) -> list[Envelope]:
        """Take in a line under its label: a record, a piece of one, or other text."""
        stream, text = self._stream(line), line.text
        if line.may_have_blank:
            if (stream.text is None and text[:2] in (b" {", b"{", b"{}")) or text[:1] == b"{":
                stream.has_blank = text[:1] == b" "
            text = text[1:] if stream.has_blank else text
        found: list[Envelope] = []
        if stream.text is not None and text.startswith(_BEGINNING):
            begins_anew = text.startswith(_ENVELOPE)
            if begins_anew or not stream.text.data.endswith(_BEFORE_REPORT):
                found = self._lost(stream)  # the end of the record before did not come
        if stream.text is None:
            if text[:1] != b"{":
                stream.last_line = text.strip()[:_LONGEST_ERROR] or stream.last_line
                return found + self._behind_text(stream, line)
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

    def _behind_text(self, stream: _Stream, line: Line) -> list[Envelope]:
        """Return the record in a line that begins otherwise, as with a time; pieces of one are lost."""
        at = line.text.find(_BEGINNING)
        if at < 0 and _SCHEMA not in line.text:
            return []
        if at >= 0 and (envelopes := self._record(line.text[at:], line)) is not None:
            return envelopes
        stream.text = Text()
        return self._lost(stream)

    def _record(self, data: bytes, line: Line) -> list[Envelope] | None:
        """Return the envelope of a record, [] for JSON that is no record, None for what is no JSON."""
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
            envelope = Envelope(status=Status.ERROR, error=f"it is no envelope: {failure}")
        except RecursionError:
            if _BEGINNING not in data[:100]:
                return []
            envelope = Envelope(status=Status.ERROR, error="its report is nested too deep")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        self._stream(line).has_record = True
        return self._named([envelope], line)

    def _named(self, envelopes: Iterable[Envelope], line: Line) -> list[Envelope]:
        """Return envelopes with the name of their node: the label, if it is one, before their own."""
        if line.is_name:
            name = line.label.decode(errors="replace")
            return [replace(each, node=name) for each in envelopes]
        label = line.label.decode(errors="replace")
        if "/" in label:  # pod/NAME/CONTAINER
            label = label.removeprefix("pod/").partition("/")[0]
        return [each if each.node else replace(each, node=label) for each in envelopes]

    def _lost(self, stream: _Stream) -> list[Envelope]:
        """Return what is to be said of a record that did not come whole; one without a name is counted."""
        assert stream.text is not None
        is_too_large, stream.text = stream.text.is_too_large, None
        stream.has_record = True
        if not stream.label and not self._is_of_node:
            self.garbled["records of unnamed nodes"] += 1
            return []
        error = "its report did not come whole; frames do: --format frame"
        wrong = Envelope(status=Status.GARBLED, error=error)
        if is_too_large:
            error = f"its report is larger than {REPORT_LIMIT >> 20} MiB"
            wrong = Envelope(status=Status.ERROR, error=error)
        return self._named([_by_word(wrong, stream)], Line(stream.label, stream.is_name, b""))

    def _end(self) -> Iterator[Envelope]:
        for label, envelope in self._frames.incomplete():
            stream = self._streams.get(label or envelope.node.encode())
            if stream is not None:
                stream.has_record = True
                envelope = _by_word(envelope, stream)
            is_name = bool(label) and stream is not None and stream.is_name
            yield from self._named([envelope], Line(label, is_name, b""))
        if self._frames.damaged:
            self.garbled["damaged frames"] += self._frames.damaged
        for stream in self._streams.values():
            if stream.text is not None:
                yield from self._lost(stream)
            elif stream.label and not stream.has_record and stream.label not in self._own_names:
                yield from self._wordless(stream)
        self._frames, self._of_ansible = Assembly(), b""
        self._streams.clear()
        self._own_names.clear()

    def _wordless(self, stream: _Stream) -> Iterator[Envelope]:
        """Yield what is to be said of a label under which no record came."""
        line = Line(stream.label, stream.is_name, b"")
        if stream.word:
            text = stream.last_line.decode(errors="replace")
            error = ": ".join(filter(None, (stream.word.error, text)))
            yield from self._named([Envelope(status=stream.word.status, error=error)], line)
        elif stream.has_damage:
            wrong = Envelope(status=Status.GARBLED, error="no frame of its report came whole")
            yield from self._named([wrong], line)
        elif stream.label.lower() not in labels.NO_NODES:
            text = stream.last_line.decode(errors="replace")
            status = labels.status_of(text)
            if status is Status.TIMEOUT and not text.startswith("exit code "):
                status = Status.ERROR
            error = f"it printed no report but: {text}" if text else "it printed no report"
            yield from self._named([Envelope(status=status, error=error)], line)


def _by_word(envelope: Envelope, stream: _Stream) -> Envelope:
    """Return a report that did not come whole as the transport has it: late, or unreachable."""
    if stream.word is None or stream.word.status is Status.ERROR:
        return envelope
    return replace(envelope, status=stream.word.status, error=stream.word.error)
