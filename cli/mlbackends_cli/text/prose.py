"""What is shown to people: lists of rows, and passages of terms with what they mean, as wide as the page."""

import textwrap
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import without_commands

#: Maximum width of a line of text: longer ones are hard to read.
_WIDEST = 100


class Passage(Struct, frozen=True):
    """A heading, and below it lines of a term and its text; a text without a term is a paragraph."""

    heading: str
    lines: tuple[tuple[str, str], ...]


class Group(Struct, frozen=True):
    """Rows below a title; `path` precedes the first cell in formats without titles."""

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


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return lines of at most `width` columns with their indentation; words are not broken."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,  # half of a name or a path is none
    )


def printed(passages: Iterable[Passage], page: Page, style: str = "bold") -> str:
    """Return passages for a terminal, or for the log of a CI job, which must not run a line as a command.

    style: that of the headings.
    """
    from mlbackends_cli.text.layout import Cell, sections  # rich, which JSON does not need

    page = replace(page, width=min(page.width, _WIDEST))
    parts = []
    for passage in passages:
        rows = [
            [*([Cell(term)] if term else []), Cell(" ".join(text.split()))]
            for term, text in passage.lines
        ]
        parts.append("\n".join([*sections([(passage.heading, rows)], page, style), ""]))
    return without_commands("\n".join(parts), page.sign("·", "."))


def markdown(passages: Iterable[Passage], level: int = 2) -> str:
    """Return passages as Markdown, headings at `level`."""
    lines = []
    for passage in passages:
        lines += [f"{'#' * level} {passage.heading}", ""]
        lines += [f"- **{term}**: {text}" if term else text for term, text in passage.lines]
        lines.append("")
    return "\n".join(lines)
