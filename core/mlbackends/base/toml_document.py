"""TOML files that people write: every error has FILE:LINE, and each key's line can be asked for."""

import operator
import re
import tomllib
from bisect import bisect_left
from functools import cached_property, reduce
from typing import Any

from msgspec import Struct

from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import pattern

#: The keys that lead to a value: that of the third `[[rule]]`'s key min is ("rule", 2, "min").
Path = tuple[str | int, ...]

#: How deep brackets, and the parts of a dotted key, may be nested; no file of ours needs a tenth of it.
DEEPEST = 40

_LONG_KEY = pattern(
    rf"""(?:^|[{{,])[ \t\[]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST}}}""",
    re.MULTILINE,
)
_BRACKETS = pattern(rf"(?:[\[{{]\s*+(?:[\w-]++\s*+=\s*+)?+){{{DEEPEST + 1}}}")
_HEAD = pattern(r"""[ \t]*\[\[[ \t]*["']?([\w-]+)["']?[ \t]*\]\]""")
#: What hides brackets and ends of lines: strings and comments; else brackets and ends of lines themselves.
_TOKEN = pattern(
    r"""["]{3}(?:[^\\]|\\.)*?"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\]|\\.)*"|'[^']*'|#[^\n]*|[][{}\n]""",
    re.DOTALL,
)
#: What a line that looks like a key may be inside of: a text of several lines, or another table.
_HIDING = pattern(r"""["]{3}|'{3}|\n[ \t]*\[""")
_CLOSING = {"[": "]", "{": "}"}


class Document(Struct, frozen=True, dict=True):
    """A TOML file that was read. file: its name as messages show it."""

    file: str
    text: str
    tables: dict[str, Any]

    @cached_property
    def _heads(self) -> dict[str, list[tuple[int, int]]]:
        """The offset and line at which each [[table]] begins, by its name."""
        heads: dict[str, list[tuple[int, int]]] = {}
        line, last = 1, 0
        for at, _ in _cuts(self.text):  # a text of several lines may hold what looks like one
            if head := _HEAD.match(self.text, at):
                line += self.text.count("\n", last, at)
                last = at
                heads.setdefault(head[1], []).append((at, line))
        return heads

    def line(self, path: Path) -> int:
        """Return the line of a key, or of the table that it would be in, counted from 1."""
        text, first = self.text, 1
        while path and not _has(self.tables, path):
            path = path[:-1]
        if len(path) > 1 and isinstance(path[1], int):
            starts = self._heads.get(str(path[0]), [])
            # One [[table]] is enough, and quicker.
            if len(starts) == len(self.tables[str(path[0])]):
                (start, first), (end, _) = [*starts, (len(text), 0)][path[1] : path[1] + 2]
                text, path = text[start:end], (path[0], 0, *path[2:])
                lines = text.split("\n")  # TOML has no other ends of lines
                matches = [i for i, line in enumerate(lines) if line.startswith(f"{path[-1]} =")]
                # Nearly all keys are written so: parsing would take twice as long as checking the rule.
                if len(path) == 3 and len(matches) == 1 and not _HIDING.search(text):
                    return first + matches[0]
        cuts = _cuts(text)
        at = bisect_left(cuts, True, key=lambda cut: _has(tomllib.loads(f"{text[: cut[0]]}\n{cut[1]}"), path))
        return first + text.count("\n", 0, cuts[max(at - 1, 0)][0])


def _has(value: Any, path: Path) -> bool:
    try:
        reduce(operator.getitem, path, value)
    except (LookupError, TypeError):
        return False
    return True


def _cuts(text: str) -> list[tuple[int, str]]:
    """Return where lines end outside of strings, each with what closes the brackets that are open there.

    The text before such a place, closed, is TOML: the first one that has a key ends the key's line.
    """
    cuts, closing = [(0, "")], ""
    for token in _TOKEN.finditer(f"{text}\n"):
        if token[0] == "\n":
            cuts.append((token.end(), closing))
        elif token[0] in _CLOSING:
            closing = _CLOSING[token[0]] + closing
        elif token[0] in "]}":
            closing = closing[1:]
    return cuts


def parsed(data: bytes, file: str) -> Document:
    """Read a file's bytes. Raises BadInput with file and line."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"{file}:{line}: not UTF-8 at byte {error.start}") from None
    # Before tomllib sees it: a dotted key of a thousand parts costs it hours, brackets its stack.
    if deep := _LONG_KEY.search(text) or _BRACKETS.search(text):
        line = text.count("\n", 0, deep.end()) + 1
        raise BadInput(f"{file}:{line}: nested more than {DEEPEST} deep")
    try:
        return Document(file, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        # tomllib has the place at the end: "... (at line 1, column 7)", "... (at end of document)".
        problem, _, place = str(error).removesuffix(")").rpartition(" (at ")
        line_number, _, column = place.removeprefix("line ").partition(", ")
        if not column:
            line_number, column = str(len(text.rstrip("\n").split("\n"))), "at the end"
        hint = "TOML has lines such as NAME = VALUE, and texts in quotes"
        raise BadInput(f"{file}:{line_number}: {problem} ({column})", hint) from None
    except RecursionError:
        raise BadInput(f"{file}: nested too deeply") from None
    except ValueError:  # int() refuses thousands of digits
        raise BadInput(f"{file}: a number in it has thousands of digits") from None
