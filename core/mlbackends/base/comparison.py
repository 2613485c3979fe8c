"""Whether a value of a report fits a clause such as `>=9.10`, `>=16GiB` or `==AVX2`.

Numbers are compared as numbers, with a unit where the clause has one; words that have an order, by it;
versions as PEP 440 orders them; other texts only by == and !=.
"""

import math
import operator
from typing import Any

from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import amount

SIGNS = ("===", "==", "~=", "!=", ">=", "<=", ">", "<")

_EQUAL = ("==", "===")
_YES, _NO = ("true", "yes", "1", "on"), ("false", "no", "0", "off")
_OPERATORS: dict[str, Any] = {
    **dict.fromkeys(_EQUAL, operator.eq),
    **dict.fromkeys((">=", "~="), operator.ge),
    "!=": operator.ne,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RELEASE = pattern(r"v?([0-9]+(?:\.[0-9]+)*)")


def fits(value: Any, sign: str, bound: str, order: tuple[str, ...] = ()) -> bool:
    """Return whether a value fits; of a list or table its length is compared.

    sign: one of SIGNS. order: the words that the value can be, from the lowest, where they have an order.
    Raises BadInput where the two cannot be compared, with what could be.
    """
    is_equality, is_equal = sign in (*_EQUAL, "!="), sign in _EQUAL
    if isinstance(value, bool):
        word = bound.lower()
        if word not in (*_YES, *_NO) or not is_equality:
            raise BadInput(f"the value is {str(value).lower()}; write ==true or ==false")
        return (value is (word in _YES)) is is_equal
    if isinstance(value, list | dict):
        value = len(value)
    if isinstance(value, int | float):
        limit = amount(bound)
        if limit is None:
            raise BadInput(f"{bound!r} is not a number, and the value is {value}")
        if math.isinf(limit.value):
            raise BadInput(f"{bound[:40]!r} is larger than any number that is compared")
        return _compare(value, limit.value, sign)
    if order and is_equality:
        return (value.lower() == bound.lower()) is is_equal
    if order:
        places = {word.lower(): place for place, word in enumerate(order)}
        if bound.lower() not in places:
            raise BadInput(f"{bound!r} is not one of its values", f"its values are {' < '.join(order)}")
        # A word of another order (SVE256 compared with AVX2) is neither above nor below.
        return _compare(places.get(value.lower(), math.nan), places[bound.lower()], sign)
    return _text_fits(str(value), sign, bound)


def in_unit_of(value: Any, bound: str) -> str:
    """Return a number in the unit of a typed bound: "7.63 GiB" for "64GiB". "" if the bound has no unit."""
    typed = amount(bound)
    if not typed or typed.factor == 1 or isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    number = value / typed.factor
    text = f"{number:.4g}"
    if float(text) == typed.number != number:  # which would read as if it were equal
        text = f"{number:.12g}"
    return f"{text} {typed.unit}"


def is_beyond(text: str) -> bool:
    """Return whether a text is a number that is larger than any that is compared."""
    number = amount(text)
    return number is not None and math.isinf(number.value)


def _compare(left: float, right: float, sign: str) -> bool:
    return bool(_OPERATORS[sign](left, right))


def _text_fits(value: str, sign: str, bound: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        specifier = SpecifierSet(f"{sign}{bound}")
    except InvalidSpecifier:
        if sign not in (*_EQUAL, "!="):
            hint = "~= needs two numbers, such as ~=2.0" if sign == "~=" else ""
            raise BadInput(f"{sign}{bound} is not a version, and {value!r} is a text", hint) from None
        return (value == bound) is (sign in _EQUAL)
    try:
        version = Version(value)
    except InvalidVersion:
        if sign in (*_EQUAL, "!="):
            return (value == bound) is (sign in _EQUAL)
        # PEP 440 does not know a kernel's 6.18.44-fc-v595, but its numbers.
        numbers = _RELEASE.match(value)
        if not numbers:
            raise BadInput(f"{value!r} is not a version, so {sign} cannot compare it") from None
        version = Version(numbers[1])
    return specifier.contains(version, prereleases=True)
