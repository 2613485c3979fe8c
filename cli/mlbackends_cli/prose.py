"""Text for people: headings, paragraphs and terms with what they mean, as wide as the page."""

import textwrap

from msgspec import Struct

from mlbackends_cli.plain import without_commands
from mlbackends_cli.terminal import Page

_WIDEST = 100
"""So many columns a line of text has at most: longer ones are hard to read."""


class Passage(Struct, frozen=True):
    """A heading, and below it lines of a term and its text; a text without a term is a paragraph."""

    heading: str
    lines: tuple[tuple[str, str], ...]


def printed(passages: "tuple[Passage, ...]", page: Page) -> str:
    """Return passages for a terminal, or for the log of a CI job, which must take no line for a command."""
    text = "\n".join(_printed(passage, page) for passage in passages)
    return without_commands(text, "·" if page.unicode else ".")


def _printed(passage: Passage, page: Page) -> str:
    width = min(page.width, _WIDEST)
    lines = [f"\033[1m{passage.heading}\033[0m" if page.color else passage.heading]
    room = max((len(term) for term, _ in passage.lines), default=0) + 4
    for term, text in passage.lines:
        indent = " " * (room if term and room < width // 2 else 4 if term else 2)
        first = f"  {term}".ljust(len(indent)) if term else indent
        if len(first) > len(indent):
            lines.append(first)
            first = indent
        lines += textwrap.wrap(
            text,
            width,
            initial_indent=first,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,  # a name in two parts is no name
        ) or [first.rstrip()]
    return "\n".join(lines) + "\n"


def markdown(passages: "tuple[Passage, ...]", level: int = 2) -> str:
    """Return passages as Markdown, headings at `level`."""
    parts = []
    for passage in passages:
        parts.append(f"{'#' * level} {passage.heading}")
        parts += [f"- **{term}**: {text}" if term else text for term, text in passage.lines]
        parts.append("")
    return "\n".join(_spaced(parts))


def _spaced(parts: "list[str]") -> "list[str]":
    """Put the empty line between a heading and what follows it."""
    return [line for part in parts for line in ([part, ""] if part.startswith("#") else [part])]
