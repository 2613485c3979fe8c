"""Frames: an envelope as short lines, each checked, so that it survives what cuts and mixes lines.

    BK1 NODE MESSAGE I/N CHECK DATA

NODE is the node's name, with "_" for what no host name has. MESSAGE and CHECK are CRC-32 in hex: of the
whole message, and of this line without "BK1 " and CHECK. I of N counts from 1. DATA of all lines, joined,
is the base64 of the zlib-compressed envelope. Every line has 512 bytes with its end, the last one by blanks:
srun cuts at 1,024, mpirun at 4,096, a container's log at 16,384, and so between two lines. Order,
repetitions and text between the lines do not matter.
"""

import binascii
import re
import zlib
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from mlbackends.model.fleet import Envelope, Status

MARK = b"BK1 "
LONGEST_LINE = 511
#: Bytes of one envelope; a real one has some ten thousand.
REPORT_LIMIT = 8 << 20
#: Bytes of messages that are not complete, of all nodes together.
PENDING_LIMIT = 512 << 20

_LONGEST_NODE = 63
_NOT_OF_A_NAME = re.compile(r"[^\w.-]", re.ASCII)
_LINE = re.compile(
    rb"BK1 ([\w.-]{1,63}) ([0-9a-f]{8}) (\d{1,5})/(\d{1,5}) ([0-9a-f]{8}) ([\w+/=]+)"
)
_MOST_PIECES = (REPORT_LIMIT // 350) + 1


def frames(envelope: Envelope) -> Iterator[str]:
    """Yield the lines of an envelope, without their ends."""
    packed = zlib.compress(msgspec.json.encode(envelope), 9)
    data = binascii.b2a_base64(packed, newline=False)
    node = _NOT_OF_A_NAME.sub("_", envelope.node)[:_LONGEST_NODE] or "_"
    message = f"{zlib.crc32(packed):08x}"
    room = LONGEST_LINE - len(f"BK1 {node} {message} 99999/99999 12345678 ")
    pieces = [data[at : at + room] for at in range(0, len(data), room)]
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
    """Puts pieces together. damaged: how many lines had a frame's mark and were no whole frame."""

    def __init__(self) -> None:
        self.damaged = 0
        self._messages: dict[tuple[bytes, bytes, bytes], _Message] = {}
        self._complete: set[int] = set()
        self._pending = 0

    def add(self, line: bytes, label: bytes = b"") -> list[Envelope]:
        """Return the envelopes that a line completes. label: what the transport wrote before it."""
        found = []
        for part in line.split(MARK)[1:]:
            match = _LINE.match(MARK + part)
            if match is None:
                self.damaged += 1
                continue
            node, message, number, count, check, piece = match.groups()
            head = b"%b %b %b/%b" % (node, message, number, count)
            if _check(head, piece) != check.decode() or not 0 < int(number) <= int(count):
                self.damaged += 1
                continue
            if envelope := self._piece((label, node, message), int(number), int(count), piece):
                found.append(envelope)
        return found

    def _piece(
        self, key: tuple[bytes, bytes, bytes], number: int, count: int, piece: bytes
    ) -> Envelope | None:
        if hash(key) in self._complete:
            return None
        message = self._messages.setdefault(key, _Message(count, {}))
        if number in message.pieces:
            return None
        if count != message.count or count > _MOST_PIECES or self._pending > PENDING_LIMIT:
            self.damaged += 1
            return None
        message.pieces[number] = piece
        self._pending += len(piece)
        if len(message.pieces) < count:
            return None
        data = b"".join(message.pieces[each] for each in range(1, count + 1))
        self._pending -= len(data)
        del self._messages[key]
        self._complete.add(hash(key))
        return _unpacked(key[1].decode(), key[2], data)

    def incomplete(self) -> Iterator[tuple[bytes, Envelope]]:
        """Yield an envelope, with its label, for each message of which pieces are missing."""
        for (label, node, _), message in self._messages.items():
            error = f"{len(message.pieces)} of {message.count} pieces came"
            yield label, Envelope(node=node.decode(), status=Status.GARBLED, error=error)


def _unpacked(node: str, message: bytes, data: bytes) -> Envelope:
    """Return the envelope in the data of a message; where it is none, one that says so."""
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
        error = f"its frames hold no message: {failure}"
        return Envelope(node=node, status=Status.GARBLED, error=error)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as failure:
        error = f"its frames hold no envelope: {failure}"
        return Envelope(node=node, status=Status.ERROR, error=error)
