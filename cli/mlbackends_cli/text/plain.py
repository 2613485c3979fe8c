"""Text that is safe to print, values with their units, and passages as wide as the page."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends.base.patterns import UNFIT, pattern, unbroken

if TYPE_CHECKING:
    from mlbackends_cli.terminal import Page

_COMMAND = pattern(r"^([^\S\n]*)(::)|##\[", re.MULTILINE)
_LONGEST_LINE = 2000
#: An integer with more bits cannot be converted to float; our own reports have none.
_MOST_BITS = 1000


def cleaned(text: str) -> str:
    """Return the text with each character that cannot or must not be shown replaced by U+FFFD."""
    return UNFIT.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return the text cleaned and on one line."""
    return cleaned(" ".join(text.split()))


def joined(*phrases: str) -> str:
    """Return the phrases that are not empty, on one line."""
    return " · ".join(filter(None, phrases))


def shortened(text: str, most: int) -> str:
    """Return the text; of one longer than `most`, its beginning and its length."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text):,} characters in total)"


def fitting_widths(most: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that fit the room if their least do, taken from what is furthest above."""
    found = list(most)
    while sum(found) > room and found != least:
        at = max(range(len(found)), key=lambda column: found[column] - least[column])
        found[at] -= 1
    return found


def without_commands(text: str, dot: str = "·") -> str:
    """Return lines that GitHub's runner does not execute as commands: a dot breaks such a line.

    The runner takes "::" at the beginning of a line, after any blanks, and "##[" anywhere;
    a report's text may hold both, and wrapping puts any word at the beginning.
    """
    return _COMMAND.sub(lambda found: f"{found[1]}{dot}::" if found[2] else f"##{dot}[", text)


def log_line(text: str) -> str:
    """Return the text on one line, which neither a terminal nor GitHub's runner takes for a command."""
    return without_commands(one_line(shortened(text, _LONGEST_LINE)))


def amount(name: str, value: Any) -> str:
    """Return a fact's value for people: bytes and hertz by the unit in the fact's name, lists joined."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return quantity(name, value)
    if isinstance(value, list):
        return ", ".join(amount(name, item) for item in value) or "none"
    if isinstance(value, tuple):  # the least and the greatest measured value
        return " to ".join(amount(name, end) for end in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {amount(str(key), item)}" for key, item in value.items()) or "none"
    return "none" if value is None else str(value)


def setting(value: Any, unset: str = "unset") -> str:
    """Return a switch's value as it is written, lists joined. unset: the word for no value."""
    if isinstance(value, list):
        return ", ".join(map(setting, value))
    text = unset if value is None else str(value)
    return text.lower() if isinstance(value, bool) else text


def quantity(name: str, value: float) -> str:
    """Return a number with the unit that its fact's name ends in."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1} or beyond"
    if name.endswith("_bytes"):
        return binary_size(value)
    if name.endswith("_hertz") and value >= 1000:
        for scale, unit in ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz")):
            if value >= scale:
                return f"{value / scale:.4g} {unit}"
    if name.endswith("_seconds"):
        if value < 600:
            return f"{value:.4g} s"
        hours, minutes = divmod(int(value) // 60, 60)
        if hours < 24:
            return f"{hours} h {minutes} min" if hours else f"{minutes} min"
        return f"{hours // 24} d {hours % 24} h"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def binary_size(value: float) -> str:
    """Return bytes as KiB, MiB, GiB or TiB with at most four digits."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:.4g} {unit}"
    return f"{value:g} B"


#: Maximum width of a line of text: longer ones are hard to read.
_WIDEST = 100


class Passage(NamedTuple):
    """A heading, and below it lines of a term and its text; a text without a term is a paragraph."""

    heading: str
    lines: tuple[tuple[str, str], ...]


class Group(NamedTuple):
    """Rows below a title; `path` precedes the first cell in formats without titles."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    path: str = ""


class Listing(NamedTuple):
    """Groups of rows with the same columns, and notes below them.

    marked: rows, by group and number, that differ from the usual.
    """

    columns: tuple[str, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    marked: frozenset[tuple[int, int]] = frozenset()


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return lines of at most `width` columns with their indentation; no word and no command is broken."""
    lines = textwrap.wrap(
        unbroken(text, width - len(rest)),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,  # half of a name or a path is none
    )
    return [line.replace("\xa0", " ") for line in lines]


def printed(passages: Iterable[Passage], page: "Page", style: str = "bold") -> str:
    """Return passages for a terminal, or for the log of a CI job, which must not run a line as a command.

    style: that of the headings.
    """
    from msgspec.structs import replace

    from mlbackends_cli.text.layout import Cell, sections  # rich, which JSON does not need

    page = replace(page, width=min(page.width, _WIDEST))
    parts = []
    for passage in passages:
        rows = [
            [*([Cell(term)] if term else []), Cell(" ".join(text.split()))] for term, text in passage.lines
        ]
        parts.append("\n".join([*sections([(passage.heading, rows)], page, style), ""]))
    return without_commands("\n".join(parts), page.sign("·", "."))


def passages_markdown(passages: Iterable[Passage], level: int = 2) -> str:
    """Return passages as Markdown, headings at `level`."""
    lines = []
    for passage in passages:
        lines += [f"{'#' * level} {passage.heading}", ""]
        lines += [f"- **{term}**: {text}" if term else text for term, text in passage.lines]
        lines.append("")
    return "\n".join(lines)
