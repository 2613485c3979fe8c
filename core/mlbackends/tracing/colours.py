"""Colours of a terminal around and in a library's line, as `docker compose` and `grep --color` put them."""

import re

_ESCAPE = b"\x1b"
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\([0-2AB])")


def plain(text: bytes) -> bytes:
    """Return the text without sequences that colour it or move the cursor."""
    return _SEQUENCE.sub(b"", text) if _ESCAPE in text else text


class Coloured:
    """A text whose parts are asked for by where they stand in it without its colours, from left to right."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._shift = 0
        self._others = _SEQUENCE.finditer(text)
        self._next = next(self._others, None)

    def part(self, start: int, end: int) -> bytes:
        """Return what stands between two places where no colours count, with the colours at its ends."""
        self._pass(start - 1)
        first = start + self._shift
        self._pass(end)
        return self._text[first : end + self._shift]

    def _pass(self, place: int) -> None:
        """Go behind the colours up to a place."""
        while self._next is not None and self._next.start() - self._shift <= place:
            self._shift += len(self._next[0])
            self._next = next(self._others, None)
