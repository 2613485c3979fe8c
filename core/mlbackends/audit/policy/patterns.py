r"""Regular expressions that cannot hang: what a policy's `matches` is searched with.

Python's `re` tries every way to match. Refused is what can have exponentially many (a repetition of
something that repeats, such as (a+)+) and what needs memory or looks around (\1, (?=a)). Of all other
patterns the number of ways is bounded, and a text is not searched where that bound is too large.
"""

import re
import warnings
from functools import partial
from math import inf, log10, prod
from typing import Any

from mlbackends.base.errors import BadInput, shown

LONGEST_PATTERN = 500
#: The number of characters of a value that are searched; no version, name or path is longer.
LONGEST_TEXT = 4096
#: The number of ways that may be tried in one text: some tenths of a second.
_MOST_WAYS = 200_000_000
#: A bound with more digits in the longest text is that of a pattern whose ways grow exponentially.
_MOST_DIGITS = 18
_REFUSED = {
    "GROUPREF": "refers to a group",
    "GROUPREF_EXISTS": "refers to a group",
    "ASSERT": "looks ahead or behind",
    "ASSERT_NOT": "looks ahead or behind",
}


class Pattern:
    """A compiled pattern. Raises ValueError, with what is wrong with it."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_PATTERN:
            raise ValueError(f"the pattern is longer than {LONGEST_PATTERN} characters")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of [[ and --, which a later Python may read otherwise
                self._parsed: Any = re._parser.parse(text)  # type: ignore[attr-defined]  # noqa: SLF001
                self._pattern = re.compile(text)
        except (re.error, Warning, OverflowError, RecursionError) as error:
            raise ValueError(f"the pattern {shown(text)} cannot be read: {error}") from None
        most = _sequence_ways(self._parsed, LONGEST_TEXT)
        self._is_quick = most * (LONGEST_TEXT + 1) <= _MOST_WAYS
        if most == inf:
            raise ValueError(
                f"the pattern {shown(text)} has a repetition inside a repetition, which may take years:"
                r" write the inner repetition without one, or as \d++"
            )

    def search(self, text: str) -> bool:
        """Return whether the pattern is found somewhere in a text. Raises BadInput where it is too long."""
        if len(text) > LONGEST_TEXT:
            raise BadInput(f"it is longer than the {LONGEST_TEXT} characters that are searched")
        ways = 0.0 if self._is_quick else _sequence_ways(self._parsed, len(text))
        if ways * (len(text) + 1) > _MOST_WAYS:
            raise BadInput("it is too long for a pattern that repeats so often")
        return self._pattern.search(text) is not None


def _sequence_ways(parsed: Any, length: int) -> float:
    """Return a bound on the ways to match at one place of a text; infinity where there is none."""
    return prod(_ways(str(operation), argument, length) for operation, argument in parsed)


def _ways(operation: str, argument: Any, length: int) -> float:
    """Return a bound on the ways of one operation of the tree that `re` compiles."""
    if operation in _REFUSED:
        raise ValueError(f"the pattern {_REFUSED[operation]}, which is not supported")
    of = partial(_sequence_ways, length=length)
    if operation == "BRANCH":
        branches = argument[1]
        heads = [branch[0] for branch in branches if branch and str(branch[0][0]) == "LITERAL"]
        # Branches that begin with different characters never match at the same place.
        firsts = {chr(character).lower() for _, character in heads}
        is_exclusive = len(firsts) == len(branches)
        return (max if is_exclusive else sum)(map(of, branches))
    if operation == "SUBPATTERN":
        return of(argument[-1])
    if operation == "ATOMIC_GROUP":
        return inf if of(argument) == inf else 1
    if operation not in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return 1
    least, most, part = argument
    most = min(most, length // max(1, part.getwidth()[0]) + 1)
    ways, times = of(part), max(1.0, most - least + 1.0)
    if ways > 1:  # each time multiplies the ways
        times = inf if most * log10(ways) > _MOST_DIGITS else times * ways**most
    return 1 if operation == "POSSESSIVE_REPEAT" and times < inf else times
