"""Where in a line the markers of all tracers stand: what a line of a library begins with."""

from functools import cache
from types import ModuleType
from typing import NamedTuple

from mlbackends.model.registry import load, names

LENGTH = 12
"""So many bytes tell the markers of all tracers apart."""
_SIGN = 8


class Marker(NamedTuple):
    """A marker in a line. at, end: from where to where. tracer: whose it is."""

    at: int
    end: int
    tracer: str


def markers(line: bytes) -> list[Marker]:
    """Return all markers in a line, in their order; no two overlap."""
    found = []
    for sign, marks in _signs():
        if sign in line:
            for mark, name in marks:
                at = line.find(mark)
                while at >= 0:
                    found.append(Marker(at, at + len(mark), name))
                    at = line.find(mark, at + len(mark))
    return sorted(found)


@cache
def tracer(name: str) -> ModuleType:
    """Return a tracer's leaf."""
    return load("mlbackends.tracing.formats", name)


@cache
def _signs() -> tuple[tuple[bytes, tuple[tuple[bytes, str], ...]], ...]:
    """Return the markers of all tracers, by the last eight bytes that several share."""
    groups: dict[bytes, list[tuple[bytes, str]]] = {}
    for name in names("mlbackends.tracing.formats"):
        for mark in tracer(name).MARKERS:
            groups.setdefault(mark[-_SIGN:], []).append((mark, name))
    return tuple((sign, tuple(marks)) for sign, marks in groups.items())


@cache
def starts() -> dict[bytes, ModuleType]:
    """Return the leaves of tracers by the start of their markers, LENGTH bytes of each."""
    return {
        mark[:LENGTH]: tracer(name)
        for name in names("mlbackends.tracing.formats")
        for mark in tracer(name).MARKERS
    }
