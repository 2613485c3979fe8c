"""Which lines of a program's output are a library's own: those that its tracer reads as a record.

A program may print a marker itself; its line goes on as nothing that the library prints, and is text.
"""

from collections.abc import Hashable, Iterable
from math import inf
from typing import Any

from mlbackends.model import registry
from mlbackends.model.trace import AnyRecord, Call

_MOST_KNOWN = 20_000


class Recognizer:
    """Measures records. markers: those of the tracers whose lines are looked for."""

    def __init__(self, markers: Iterable[bytes]) -> None:
        wanted = frozenset(markers)
        self._tracers: dict[bytes, tuple[Any, Any]] = {}
        for name in registry.names("mlbackends.tracing.formats"):
            leaf = registry.load("mlbackends.tracing.formats", name)
            tracer = leaf, leaf.Shortener()
            self._tracers |= {each: tracer for each in leaf.MARKERS if each in wanted}
        self._known: set[Hashable] = set()

    def length(self, line: bytes) -> int:
        """Return how many bytes of a line are a record, 0 for none; text may stand behind it.

        line: from its marker on, without its end.
        """
        for marker, (leaf, shortener) in self._tracers.items():
            if line.startswith(marker):
                return self._length(line, leaf, shortener)
        return 0

    def _length(self, line: bytes, leaf: Any, shortener: Any) -> int:
        body = line.rstrip(b"\r")
        short = shortener.shorten(body)
        if short is not None and short[0] in self._known and 0 <= (short[1] or 0) < inf:
            return len(line)
        text = body.decode("utf-8", "surrogateescape")
        record = leaf.parse(text)
        if record is not None:
            if short is not None and _is_right(record, *short):
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known.add(short[0])
            return len(line)
        split = leaf.split(text)
        return len(split[0].raw.encode("utf-8", "surrogateescape")) if split else 0


def _is_right(record: AnyRecord, key: Hashable, duration: float | None) -> bool:
    """Tell whether a line was cut to what all such calls have; decimal commas mislead a shortener."""
    return (
        isinstance(record, Call)
        and record.duration_ns is not None
        and record.duration_ns == duration
        and (not isinstance(key, bytes) or key.decode("utf-8", "surrogateescape") == record.key)
    )
