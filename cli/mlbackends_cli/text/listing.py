"""A list for people: groups of rows of short cells, which the formats print; nothing in it is typed."""

from msgspec import Struct


class Group(Struct, frozen=True):
    """Rows below a title; `path` goes before the first cell where titles cannot be shown."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    path: str = ""


class Listing(Struct, frozen=True):
    """Groups of rows with the same columns, and notes below them.

    marked: rows, by group and number, that differ from the usual.
    """

    columns: tuple[str, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    marked: frozenset[tuple[int, int]] = frozenset()
