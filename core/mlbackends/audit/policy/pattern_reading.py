"""Reading a regular expression into a tree: the part of Python's syntax that needs no memory."""

import re
import warnings
from functools import lru_cache

from msgspec import Struct

from mlbackends.model.errors import shown

_DEEPEST = 20
_MOST_TIMES = 1000
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_TIMES = re.compile(r"\{([0-9]*)(?:(,)([0-9]*))?\}")
_ESCAPED = re.compile(
    r"\\(?:[dDwWsStnrfva]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[^A-Za-z0-9])", re.DOTALL
)


class Characters:
    """One character out of some: a class or an escape as `re` reads it, or "."; plain: that one itself."""

    def __init__(self, text: str, flags: int = 0, *, is_plain: bool = False) -> None:
        self.plain = text if is_plain and not flags else ""
        if not self.plain:
            self._has = _compiled(re.escape(text) if is_plain else text, flags).fullmatch

    def has(self, character: str) -> bool:
        """Tell whether it is one of them."""
        return character == self.plain if self.plain else self._has(character) is not None


@lru_cache(maxsize=256)
def _compiled(text: str, flags: int) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of [[ and --, which a later Python may read otherwise
        try:
            return re.compile(text, flags)
        except (re.error, FutureWarning, OverflowError) as error:
            raise ValueError(f"{shown(text)} cannot be read: {error}") from None


class AtStart(Struct, frozen=True):
    """Where the text begins."""


class AtEnd(Struct, frozen=True):
    """Where it ends. very: not before a line end that is the last character."""

    very: bool


class Between(Struct, frozen=True):
    """Where a word begins or ends. Where none does, in an empty text, Pythons do not agree."""


class Sequence(Struct, frozen=True):
    """One after the other."""

    parts: "tuple[Node, ...]"


class Either(Struct, frozen=True):
    """One of them."""

    parts: "tuple[Node, ...]"


class Repeated(Struct, frozen=True):
    """Several times the same; most: None for any number."""

    part: "Node"
    least: int
    most: int | None


Node = Characters | AtStart | AtEnd | Between | Sequence | Either | Repeated

_PLACES: dict[str, Node] = {
    "^": AtStart(),
    "$": AtEnd(very=False),
    r"\A": AtStart(),
    r"\Z": AtEnd(very=True),
    r"\b": Between(),
}


def read(text: str) -> tuple[Node, int]:
    """Return the tree and the flags of `re`. Raises ValueError, with what is wrong."""
    reader = _Reader(text)
    tree = reader.either(0)
    if reader.at < len(text):
        raise ValueError(f"the pattern has a ) at {reader.at} that closes nothing")
    return tree, reader.flags


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.flags = int(re.IGNORECASE) if text.startswith("(?i)") else 0
        self.at = 4 if self.flags else 0

    def either(self, depth: int) -> Node:
        """Read alternatives, up to a closing parenthesis or the end."""
        if depth > _DEEPEST:
            raise ValueError(f"the pattern nests more than {_DEEPEST} parentheses")
        parts = [self.sequence(depth)]
        while self.text.startswith("|", self.at):
            self.at += 1
            parts.append(self.sequence(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def sequence(self, depth: int) -> Node:
        """Read one alternative."""
        parts: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            start = self.at
            part = self.one(depth)
            parts.append(self.repeated(part, start))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def one(self, depth: int) -> Node:
        """Read what a repetition can follow."""
        mark = self.text[self.at]
        two = self.text[self.at : self.at + 2]
        for place in (mark, two):
            if place in _PLACES:
                self.at += len(place)
                return _PLACES[place]
        if mark == "(":
            return self.group(depth)
        if mark in "*+?" or (mark == "{" and self.times()):
            raise ValueError(f"the pattern has {shown(mark)} at {self.at} with nothing to repeat")
        if mark == "[":
            return self.characters(_CLASS, "[ that is not closed")
        if mark == "\\":
            return self.characters(_ESCAPED, f"{shown(two)}, which is not taken here")
        self.at += 1
        return Characters(mark, self.flags, is_plain=mark != ".")

    def characters(self, form: re.Pattern[str], otherwise: str) -> Node:
        """Read a class or an escaped character."""
        found = form.match(self.text, self.at)
        if not found:
            raise ValueError(f"the pattern has a {otherwise}, at {self.at}")
        self.at = found.end()
        return Characters(found[0], self.flags)

    def group(self, depth: int) -> Node:
        """Read what is in parentheses."""
        start = self.at
        self.at += 3 if self.text.startswith("(?:", start) else 1
        if self.text.startswith("?", self.at):
            raise ValueError(
                f"the pattern has a (? at {start}; of these only (?: and a leading (?i)"
            )
        inner = self.either(depth + 1)
        if not self.text.startswith(")", self.at):
            raise ValueError(f"the pattern has a ( at {start} that is not closed")
        self.at += 1
        return Sequence((inner,))

    def times(self) -> re.Match[str] | None:
        """Return the {2,3} that stands here; {} and {x} are plain characters."""
        found = _TIMES.match(self.text, self.at)
        return found if found and (found[1] or found[2]) else None

    def repeated(self, part: Node, start: int) -> Node:
        """Read the * + ? or {2,3} behind a part, if there is one."""
        mark = self.text[self.at : self.at + 1]
        if mark == "{" and (found := self.times()):
            least, most = _bounds(found)
            self.at = found.end()
        elif mark and mark in "*+?":
            least, most = (1 if mark == "+" else 0), (1 if mark == "?" else None)
            self.at += 1
        else:
            return part
        is_place = not isinstance(part, Characters | Sequence)
        if is_place:
            raise ValueError(
                f"the pattern repeats {self.text[start : start + 2]!r}, which is a place"
            )
        if self.text.startswith("?", self.at):  # lazy: which of several matches does not matter
            self.at += 1
        following = self.text[self.at : self.at + 1]
        if (following and following in "*+?") or (following == "{" and self.times()):
            raise ValueError(f"the pattern repeats a repetition, at {self.at}")
        return Repeated(part, least, most)


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    if max(len(found[1]), len(found[3] or "")) > 4:
        raise ValueError(f"{found[0][:20]} repeats more than {_MOST_TIMES} times")
    least = int(found[1] or 0)
    most = int(found[3]) if found[3] else None if found[2] else least
    if least > (least if most is None else most) or max(least, most or 0) > _MOST_TIMES:
        raise ValueError(f"{found[0]} repeats more than {_MOST_TIMES} times, or backwards")
    return least, most
