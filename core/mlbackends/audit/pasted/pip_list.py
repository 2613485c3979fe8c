"""the output of `pip list` or `pip freeze`."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated, package

_HEAD = re.compile(r"^[ \t]*Package[ \t]+Version\b.*\n[ \t]*-+[ \t]+-+.*$", re.MULTILINE)
_ROW = re.compile(r"([A-Za-z][\w.-]*)[ \t]+(\d\S*)(?:[ \t]+\S.*)?$")
_FROZEN = re.compile(r"^[ \t]*([A-Za-z][\w.-]*)==(\d[\w.+!-]*)[ \t]*$", re.MULTILINE)
#: Rows without their heading, as grep leaves them: two or more in a row, with two blanks or more.
_BARE = re.compile(r"(?:^[ \t]*[A-Za-z][\w.-]* {2,}\d+\.\d[\w.+]*[ \t]*(?:\n|$)){2,}", re.MULTILINE)
#: Fewer frozen requirements than these may be part of a sentence.
_FEWEST = 3


def matches(text: str) -> bool:
    """Return whether the text has the heading of its columns, or some rows or requirements alone."""
    frozen = sum(1 for _ in _FROZEN.finditer(text))
    return bool(_HEAD.search(text) or _BARE.search(text)) or frozen >= _FEWEST


def read(text: str) -> Iterator[Stated]:
    """Read the rows below each heading or without one, up to a line that is none, and all requirements."""
    starts = [head.end() + 1 for head in _HEAD.finditer(text)]
    for at in (*starts, *(rows.start() for rows in _BARE.finditer(text))):
        for line in text[at:].split("\n"):
            if not (row := _ROW.match(line.strip())):
                break
            yield package(row[1], row[2], at)
            at += len(line) + 1
    yield from (package(match[1], match[2], match.start()) for match in _FROZEN.finditer(text))
