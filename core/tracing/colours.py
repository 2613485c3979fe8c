"""Colours of a terminal around and in a library's line, as `docker compose` and `grep --color` put them."""

import re

_ESCAPE = b"\x1b"
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\([0-2AB])")


def plain(text: bytes) -> bytes:
    """Return the text without sequences that colour it or move the cursor."""
    return _SEQUENCE.sub(b"", text) if _ESCAPE in text else text


def start(text: bytes, length: int) -> bytes:
    """Return the start of a text, colours and all, that is so long without them."""
    end = length
    for found in _SEQUENCE.finditer(text):
        if found.start() > end:
            break
        end += len(found[0])
    return text[:end]
