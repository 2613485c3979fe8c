"""Pieces of Markdown as GitHub and GitLab read it, from text that may hold anything."""

import re
from collections.abc import Iterable, Sequence

from mlbackends_cli.text.plain import one_line, shortened

_MOST_CHARACTERS = 2000
_LITERAL = str.maketrans({
    **{letter: f"\\{letter}" for letter in "\\`*_{}[]|~"},
    "<": "&lt;",
    ">": "&gt;",
    "&": "&amp;",
    # A word joiner: GitHub would notify whom it names, and link what has the number.
    "@": "@\u2060",
    "#": "#\u2060",
})  # fmt: skip
_REFERENCE = re.compile(r"\bGH-(?=[0-9])", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<=:)/(?=/)|(?<=[Ww]{3})\.")


def literal(text: str) -> str:
    """Return text on one line that reads as it is, in a table's cell too; no address becomes a link."""
    line = one_line(shortened(text, _MOST_CHARACTERS)).translate(_LITERAL)
    line = _REFERENCE.sub(lambda found: f"{found[0]}\u2060", line)
    return _ADDRESS.sub(lambda found: f"\\{found[0]}", line)


def code(text: str, *, in_table: bool = True) -> str:
    """Return text on one line as code; in a table's cell a bar needs a backslash, elsewhere it shows."""
    text = one_line(shortened(text, _MOST_CHARACTERS))
    if not text:
        return ""
    fence = "`" * (_longest_run(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    span = f"{fence}{space}{text}{space}{fence}"
    return span.replace("|", "\\|") if in_table else span


def fenced(text: str, language: str = "") -> str:
    """Return text on one line as a block of code, which can be copied with a click."""
    text = one_line(shortened(text, _MOST_CHARACTERS))
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without the columns that are empty in all rows; "" without rows."""
    rows = list(rows)
    used = [i for i in range(len(head)) if any(row[i] for row in rows)]
    if not used:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line[i] for i in used)} |" for line in lines)


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
