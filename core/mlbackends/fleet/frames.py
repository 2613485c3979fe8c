"""Frames: an envelope as short lines with checksums, which survive transports that cut and mix lines.

    BK1 NODE MESSAGE I/N CHECK DATA

NODE is the node's name, with "_" for characters that no host name has. MESSAGE and CHECK are CRC-32 in hex:
of the whole message, and of this line without "BK1 " and CHECK. I of N counts from 1. DATA of all lines,
joined, is the base64 of the zlib-compressed envelope. Every line, padded with blanks, has 512 bytes with its
newline: srun cuts at 1,024 bytes, mpirun at 4,096 and a container's log at 16,384, and so between two lines.
Order, repetitions and text between the lines do not matter.

`frames` writes them on a node. On the other side a line goes through `Reader.read` (reader.py), which removes
the transport's label, and `Assembly.add` here, which returns the envelope when its last frame has come;
`Collection.add` (collection.py) compares the report in it.
"""

import binascii
import re
import zlib
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from mlbackends.base.errors import why_not
from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.model.fleet import Envelope, Status

MARK = b"BK1 "
LONGEST_LINE = 511
#: Bytes of one envelope; a real one has some ten thousand.
REPORT_LIMIT = 8 << 20
#: Bytes of all incomplete messages together.
PENDING_LIMIT = 512 << 20
#: What a piece takes in addition to its bytes.
_PIECE_BYTES = 200

_LONGEST_NODE = 63
_NOT_OF_A_NAME = pattern(r"[^\w.-]", re.ASCII)
_LINE = bytes_pattern(rb"BK1 ([\w.-]{1,63}) ([0-9a-f]{8}) (\d{1,5})/(\d{1,5}) ([0-9a-f]{8}) ([\w+/=]+)")
_MOST_PIECES = (REPORT_LIMIT // 350) + 1


def frames(envelope: Envelope) -> Iterator[str]:
    """Yield the lines of an envelope, without newlines."""
    packed = zlib.compress(msgspec.json.encode(envelope), 9)
    data = binascii.b2a_base64(packed, newline=False)
    node = _NOT_OF_A_NAME.sub("_", envelope.node)[:_LONGEST_NODE] or "_"
    message = f"{zlib.crc32(packed):08x}"
    width = LONGEST_LINE - len(f"BK1 {node} {message} 99999/99999 12345678 ")
    pieces = [data[at : at + width] for at in range(0, len(data), width)]
    for number, piece in enumerate(pieces, 1):
        head = f"{node} {message} {number}/{len(pieces)}"
        yield f"BK1 {head} {_check(head.encode(), piece)} {piece.decode()}".ljust(LONGEST_LINE)


def _check(head: bytes, piece: bytes) -> str:
    return f"{zlib.crc32(piece, zlib.crc32(head)):08x}"


class _Message(Struct):
    """A message of which some pieces came, by number."""

    count: int
    pieces: dict[int, bytes]


class Assembly:
    """Puts frames together. damaged: the number of lines with a frame's mark that are not a valid frame."""

    def __init__(self) -> None:
        self.damaged = 0
        self._messages: dict[tuple[bytes, bytes, bytes], _Message] = {}
        self._complete: set[int] = set()
        self._pending = 0

    def add(self, line: bytes, label: bytes = b"") -> list[Envelope]:
        """Return the envelopes that a line completes. label: the prefix that the transport wrote."""
        envelopes = []
        for part in line.split(MARK)[1:]:
            match = _LINE.match(MARK + part)
            node, name, number, total, check, piece = match.groups() if match else (b"",) * 6
            head = b"%b %b %b/%b" % (node, name, number, total)
            if match is None or _check(head, piece) != check.decode():
                self.damaged += 1
                continue
            key, at, count = (label, node, name), int(number), int(total)
            message = self._messages.get(key) or _Message(count, {})
            if hash(key) in self._complete or at in message.pieces:
                continue
            is_valid = 0 < at <= count == message.count and count <= _MOST_PIECES
            if not is_valid or self._pending > PENDING_LIMIT:
                self.damaged += 1
                continue
            self._messages[key] = message
            message.pieces[at] = piece
            self._pending += len(piece) + _PIECE_BYTES
            if len(message.pieces) == count:
                data = b"".join(message.pieces[place] for place in range(1, count + 1))
                self._pending -= len(data) + count * _PIECE_BYTES
                del self._messages[key]
                self._complete.add(hash(key))
                envelopes.append(_unpacked(node.decode(), name, data))
        return envelopes

    def incomplete(self) -> Iterator[tuple[bytes, Envelope]]:
        """Yield the label and an error envelope for each message with missing frames."""
        for (label, node, _), message in self._messages.items():
            error = f"{len(message.pieces)} of {message.count} pieces arrived"
            yield label, Envelope(node=node.decode(), status=Status.GARBLED, error=error)


def _unpacked(node: str, message: bytes, data: bytes) -> Envelope:
    """Return the envelope in the data of a message, or an error envelope if it holds none."""
    try:
        packed = binascii.a2b_base64(data, strict_mode=True)
        if b"%08x" % zlib.crc32(packed) != message:
            error = "the checksum of its frames is wrong"
            return Envelope(node=node, status=Status.GARBLED, error=error)
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, REPORT_LIMIT)
        if unpacker.unconsumed_tail:
            error = f"its report is larger than {REPORT_LIMIT >> 20} MiB"
            return Envelope(node=node, status=Status.ERROR, error=error)
        return msgspec.json.decode(text, type=Envelope)
    except (binascii.Error, zlib.error) as failure:
        error = f"its frames cannot be unpacked: {failure}"
        return Envelope(node=node, status=Status.GARBLED, error=error)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as failure:
        error = f"its frames do not contain an envelope: {why_not(failure)}"
        return Envelope(node=node, status=Status.ERROR, error=error)
