r"""Regular expressions that cannot hang: what a policy's `matches` is searched with.

Python's `re` tries every way to match, and a pattern such as (a+)+b keeps it busy for years. This takes
the part of its syntax that needs no memory (no \1, no look-around), and follows all ways at once: the time
grows with pattern times text, never faster. A pattern that has few ways is given to `re`, which is quicker.
"""

import re
from collections.abc import Iterator
from typing import Any

from mlbackends.audit.policy.pattern_reading import (
    AtEnd,
    AtStart,
    Between,
    Characters,
    Either,
    Node,
    Repeated,
    Sequence,
    read,
)

LONGEST_PATTERN = 500
LONGEST_TEXT = 4096
"""So many characters of a value are searched; no version, name or path is longer."""
_MOST_STATES = 2000
_MOST_WAYS = 200_000
"""So many ways `re` may try at most: some thousandths of a second."""


class Pattern:
    """A compiled pattern. Raises ValueError, with what is wrong with it."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_PATTERN:
            raise ValueError(f"the pattern is longer than {LONGEST_PATTERN} characters")
        self._tree, flags = read(text)
        if _states(self._tree) > _MOST_STATES:
            raise ValueError("the pattern repeats too much: it would need too many states")
        self._words = _words(self._tree)
        self._automaton: _Automaton | None = None
        self._is_simple = _ways(self._tree, LONGEST_TEXT) * (LONGEST_TEXT + 1) <= _MOST_WAYS
        if not self._words:
            try:
                self._quick = re.compile(text, flags)
            except re.error as error:
                raise ValueError(f"the pattern cannot be read: {error}") from None

    def search(self, text: str) -> bool:
        """Tell whether the pattern is found somewhere in a text of at most LONGEST_TEXT."""
        if self._words:
            return any(word in text for word in self._words)
        if self._is_simple or _ways(self._tree, len(text)) * (len(text) + 1) <= _MOST_WAYS:
            return self._quick.search(text) is not None
        if self._automaton is None:
            self._automaton = _Automaton(self._tree)
        return self._automaton.search(text)


def _words(node: Node) -> list[str]:
    """Return the words of a pattern that is nothing but words, as H100|H200 is; [] of any other."""
    if isinstance(node, Characters):
        return [node.plain] if node.plain else []
    if isinstance(node, Sequence):
        parts = [_words(part) for part in node.parts]
        return ["".join(part[0] for part in parts)] if all(len(p) == 1 for p in parts) else []
    if isinstance(node, Either):
        found = [_words(part) for part in node.parts]
        return [word for words in found for word in words] if all(found) else []
    return []


def _ways(node: Node, length: int) -> int:
    """Return a bound on how many ways there are to match at one place of a text."""
    if isinstance(node, Sequence):
        product = 1
        for part in node.parts:
            product = min(product * _ways(part, length), _MOST_WAYS + 1)
        return product
    if isinstance(node, Either):
        return min(sum(_ways(part, length) for part in node.parts), _MOST_WAYS + 1)
    if isinstance(node, Repeated):
        if not isinstance(node.part, Characters):
            return _MOST_WAYS + 1
        most = length if node.most is None else min(node.most, length)
        return max(1, most - node.least + 1)
    return 1


def _states(node: Node) -> int:
    if isinstance(node, Sequence | Either):
        total = 1
        for part in node.parts:
            total = min(total + _states(part) + 1, _MOST_STATES + 1)
        return total
    if isinstance(node, Repeated):
        times = node.least + 1 if node.most is None else max(node.most, 1)
        return min(times * (_states(node.part) + 1), _MOST_STATES + 1)
    return 1


class _Automaton:
    """A pattern as states. Each is (what it takes, the next states); None takes nothing."""

    def __init__(self, tree: Node) -> None:
        self._states: list[tuple[Any, list[int]]] = []
        self._end = self._state(None)
        self._start = self._added(tree, self._end)

    def _state(self, takes: Any, *following: int) -> int:
        self._states.append((takes, list(following)))
        return len(self._states) - 1

    def _added(self, node: Node, following: int) -> int:
        """Add the states of a node that `following` comes after; return its first one."""
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                following = self._added(part, following)
            return following
        if isinstance(node, Either):
            return self._state(None, *(self._added(part, following) for part in node.parts))
        if isinstance(node, Repeated):
            return self._repeated(node, following)
        return self._state(node, following)

    def _repeated(self, node: Repeated, following: int) -> int:
        if node.most is None:
            again = self._state(None, following)
            self._states[again][1].insert(0, self._added(node.part, again))
            following = again
        else:
            end = following
            for _ in range(node.most - node.least):
                following = self._state(None, self._added(node.part, following), end)
        for _ in range(node.least):
            following = self._added(node.part, following)
        return following

    def search(self, text: str) -> bool:
        """Walk through the text once, in all states at the same time."""
        current: set[int] = set()
        for at in range(len(text) + 1):
            reached = self._reached(current | {self._start}, text, at)
            if self._end in reached:
                return True
            if at == len(text):
                return False
            current = {following for state in reached for following in self._taken(state, text[at])}
        return False

    def _taken(self, state: int, character: str) -> Iterator[int]:
        takes, following = self._states[state]
        if isinstance(takes, Characters) and takes.has(character):
            yield from following

    def _reached(self, states: set[int], text: str, at: int) -> set[int]:
        """Return the states, and those that are reached from them without taking a character."""
        reached = set(states)
        waiting = list(states)
        while waiting:
            takes, following = self._states[waiting.pop()]
            if takes is None or (not isinstance(takes, Characters) and _holds(takes, text, at)):
                for state in following:
                    if state not in reached:
                        reached.add(state)
                        waiting.append(state)
        return reached


def _holds(place: AtStart | AtEnd | Between, text: str, at: int) -> bool:
    if isinstance(place, AtStart):
        return at == 0
    if isinstance(place, AtEnd):
        return at == len(text) or (not place.very and at == len(text) - 1 and text[at] == "\n")
    before = at > 0 and _is_word(text[at - 1])
    after = at < len(text) and _is_word(text[at])
    return before != after


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
