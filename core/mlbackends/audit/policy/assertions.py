"""Assertions about values: compiled once from a rule, and called with each value."""

from collections.abc import Callable
from math import isnan
from typing import Any, NamedTuple

from mlbackends.audit.policy.patterns import Pattern
from mlbackends.base import comparison
from mlbackends.base.element_types import element_type
from mlbackends.base.errors import BadInput, UnknownName, shown, suggestion
from mlbackends.base.patterns import pattern

_NUMBERS = pattern(r"[0-9]+(?:\.[0-9]+)*")
_COUNT = pattern(r"\s*(==|!=|>=|<=|>|<)?\s*([0-9]{1,9})\s*")
#: Larger whole numbers cannot be compared with fractions.
_LARGEST = 10**308
#: No version is longer; longer texts are not read as one.
LONGEST_VERSION = 200


class Assertion(NamedTuple):
    """Something that a value must be. needed: in words. holds: raises BadInput if incomparable."""

    needed: str
    holds: Callable[[Any], bool]


def equals(expected: Any, *, is_so: bool = True) -> Assertion:
    """Return an assertion: equal to a value; or, unless `is_so`, not equal to it."""

    def holds(value: Any) -> bool:
        for side, other in ((value, expected), (expected, value)):
            if isinstance(side, bool) and is_number(other):
                raise BadInput(f"{worded(value)} is never {worded(expected)}")
        return is_equal(value, expected) is is_so

    return Assertion(worded(expected) if is_so else f"not {worded(expected)}", holds)


def one_of(expected: list[Any], *, is_so: bool = True) -> Assertion:
    """Return an assertion: one of some values; or, unless `is_so`, none of them."""
    words = shown(expected) if len(expected) > 8 else ", ".join(map(worded, expected))
    return Assertion(
        f"{'one' if is_so else 'none'} of {words}",
        lambda value: any(is_equal(value, item) for item in expected) is is_so,
    )


def version(text: str) -> Assertion:
    """Return an assertion: a version that fits PEP 440 specifiers, as prereleases may. Raises ValueError."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{shown(text)} is not a version specifier such as '>=9.10,<10'") from None
    if not text.strip():
        raise ValueError("a version specifier is missing, such as '>=9.10,<10'")

    def holds(value: Any) -> bool:
        read = read_version(_single(value))
        if read is None:
            raise BadInput(f"{shown(value)} is not a version")
        return specifiers.contains(read, prereleases=True)

    return Assertion(text.strip(), holds)


def read_version(value: Any) -> Any:
    """Return a text as a version, or its numbers if PEP 440 does not know it; None if it has no numbers.

    6.8.0-60-generic is 6.8.0, glibc-2.39 is 2.39.
    """
    from packaging.version import InvalidVersion, Version

    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)[:LONGEST_VERSION]
    try:
        return Version(text)
    except InvalidVersion:
        numbers = _NUMBERS.search(text)
        return Version(numbers[0]) if numbers else None


def compared(sign: str, expected: str, order: tuple[str, ...], kind: Any) -> Assertion:
    """Return an assertion: compared with a value, as `backends info --require` does. Raises ValueError.

    kind: the type that the value is declared to have, None where it is not known.
    """
    sample = order[0] if order else {int: 0, float: 0.5, bool: True}.get(kind)
    is_truth = expected.lower() in ("true", "false")
    refuse_beyond(expected)
    try:
        if sample is not None:
            comparison.fits(sample, sign, expected, order)
        is_comparable = is_truth or kind is not bool
    except BadInput:
        is_comparable = False
    if not is_comparable and order:
        near = suggestion(expected, order)
        raise ValueError(f"{shown(expected)} is not one of {' < '.join(order)}{near}")
    if not is_comparable and kind is bool:
        raise ValueError("the value is true or false: write == true or == false")
    if not is_comparable:
        raise ValueError(f"the value is a number, and {shown(expected)} is not a number")
    version_fits = None
    if sample is None and sign not in ("==", "===", "!="):
        try:
            version_fits = version(f"{sign}{expected}").holds
        except ValueError:
            if kind is str:
                hint = "; ~= needs two numbers, such as ~= 2.0" if sign == "~=" else ""
                raise ValueError(
                    f"{shown(expected)} is not a version, and the value is a text{hint}"
                ) from None

    def holds(value: Any) -> bool:
        if sample is None and isinstance(value, bool) and not is_truth:
            raise BadInput(f"{worded(value)} is never {worded(expected)}")
        if version_fits and isinstance(value, str):
            return version_fits(value)
        return comparison.fits(_single(value), sign, expected, order)

    return Assertion(expected if sign in ("==", "===") else f"{sign} {expected}", holds)


def _single(value: Any) -> Any:
    """Return the value. Raises BadInput for a list or table, whose length is count's matter."""
    if isinstance(value, list | tuple | dict):
        noun = "table" if isinstance(value, dict) else "list"
        raise BadInput(f"it is a {noun}: use count to compare its length")
    return value


def refuse_beyond(expected: Any) -> None:
    """Raise ValueError for a number, or a list with one, that is larger than any that is compared."""
    for item in expected if isinstance(expected, list) else [expected]:
        if isinstance(item, int) and not -_LARGEST <= item <= _LARGEST:
            raise ValueError(f"a number of {len(str(abs(item)))} digits is larger than any value")
        if isinstance(item, str) and comparison.is_beyond(item):
            raise ValueError(f"{shown(item)} is larger than any value")


def bounded(sign: str, expected: float | str) -> Assertion:
    """Return an assertion: a number that is at least (>=) or at most (<=) another. Raises ValueError."""
    text = expected.strip().replace("_", "") if isinstance(expected, str) else None
    try:
        comparison.fits(0, sign, "0" if text is None else text)
    except BadInput:
        raise ValueError(f"{shown(expected)} is neither a number nor a quantity such as '16GiB'") from None
    if isinstance(expected, float) and isnan(expected):
        raise ValueError("nan cannot be compared with")

    def holds(value: Any) -> bool:
        if not is_number(value):
            raise BadInput(f"{worded(_single(value))} is not a number")
        if text is not None:
            return comparison.fits(value, sign, text)
        return bool(value >= expected if sign == ">=" else value <= expected)

    return Assertion(f"{'at least' if sign == '>=' else 'at most'} {expected}", holds)


def matches(text: str) -> Assertion:
    """Return an assertion: a text in which a regular expression is found. Raises ValueError."""
    compiled = Pattern(text)

    def holds(value: Any) -> bool:
        if not isinstance(value, str):
            raise BadInput(f"{worded(value)} is not a text")
        return compiled.search(value)

    return Assertion(f"a text that matches {shown(text)}", holds)


def contains(expected: Any) -> Assertion:
    """Return an assertion: has a value, or all values of a list, as an element, a key or a part of a text."""
    members = expected if isinstance(expected, list) else [expected]

    def holds(value: Any) -> bool:
        if isinstance(value, str):
            return all(isinstance(member, str) and member in value for member in members)
        if not isinstance(value, list | dict):
            raise BadInput(f"{worded(value)} is not a list, table or text")
        return all(
            any(is_equal(inside, name) for inside in value for name in _names(member)) for member in members
        )

    return Assertion(f"to have {' and '.join(worded(member) for member in members)}", holds)


def _names(word: Any) -> tuple[Any, ...]:
    """Return a word and, of an element type such as bf16, the name that reports have."""
    try:
        return (word, element_type(word)) if isinstance(word, str) else (word,)
    except UnknownName:
        return (word,)


def counted(expected: int | str) -> Assertion:
    """Return an assertion about a number of elements; it is called with the number. Raises ValueError."""
    found = _COUNT.fullmatch(str(expected))
    if not found:
        raise ValueError(f"{shown(expected)} is not a count such as 8 or '>=2'")
    sign, number = found[1] or "==", found[2]
    needed = number if sign == "==" else f"{sign} {number}"
    return Assertion(needed, lambda value: comparison.fits(value, sign, number))


def at_least(word: str, order: tuple[str, ...]) -> Assertion:
    """Return an assertion: a word of an order or a higher one. Raises ValueError."""
    if not order:
        raise ValueError("the value has no order; use min for a number, version for a version")
    return Assertion(f"at least {word}", compared(">=", word, order, str).holds)


def is_number(value: Any) -> bool:
    """Return whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_equal(value: Any, expected: Any) -> bool:
    """Return whether two values are equal; true is not 1, and 8 is 8.0."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, list | tuple) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(is_equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(is_equal(value[key], expected[key]) for key in value)
    return bool(value == expected)


def worded(value: Any) -> str:
    """Return a value as a message shows it: texts without quotes where they are one word."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        is_word = value.isprintable() and value and " " not in value and len(value) <= 80
        return value if is_word else shown(value)
    return shown(value)
