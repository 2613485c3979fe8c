"""Colours of a terminal around and in a library's line, as `docker compose` and `grep --color` put them."""

import re

_ESCAPE = b"\x1b"
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\([0-2AB])")


def plain(text: bytes) -> bytes:
    """Return the text without sequences that colour it or move the cursor."""
    return _SEQUENCE.sub(b"", text) if _ESCAPE in text else text


def part(text: bytes, start: int, end: int) -> bytes:
    """Return what stands from one place to another where no colours count, with all colours at its ends."""
    shift = 0
    first = start
    for found in _SEQUENCE.finditer(text):
        if found.start() - shift < start:
            first = start + shift + len(found[0])
        if found.start() - shift > end:
            break
        shift += len(found[0])
    return text[first : end + shift]
