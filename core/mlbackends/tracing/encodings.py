"""Logs as UTF-8 without mark: PowerShell's `>` writes UTF-16, some editors put a mark at the start."""

import codecs
from collections.abc import Iterable, Iterator

_SAMPLE = 64
_MARKS = {
    codecs.BOM_UTF8: "",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same text as UTF-8; bytes that are no UTF-16, nor meant to be, pass as they are."""
    stream = iter(chunks)
    start = b""
    for chunk in stream:
        start += chunk
        if len(start) >= _SAMPLE:
            break
    mark, encoding = _encoding(start)
    start = start[len(mark) :]
    if not encoding:
        yield start
        yield from stream
        return
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    yield decoder.decode(start).encode("utf-8", "surrogatepass")
    for chunk in stream:
        yield decoder.decode(chunk).encode("utf-8", "surrogatepass")


def _encoding(start: bytes) -> tuple[bytes, str]:
    """Return the mark at the start and the encoding to be decoded, "" for none."""
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return mark, encoding
    sample = start[:_SAMPLE]
    if len(sample) >= 8:
        low, high = sample[1::2].count(0), sample[::2].count(0)
        if low > 0.8 * (len(sample) // 2) and high == 0:
            return b"", "utf-16-le"
        if high > 0.8 * (len(sample) // 2) and low == 0:
            return b"", "utf-16-be"
    return b"", ""
