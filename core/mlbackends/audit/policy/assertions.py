"""What a rule asserts of a value: compiled once, and checked for each value."""

from collections.abc import Callable
from math import isnan
from typing import Any, NamedTuple

from mlbackends.audit.policy.patterns import Pattern
from mlbackends.model import comparison
from mlbackends.model.errors import BadInput, shown, suggestion
from mlbackends.model.patterns import pattern

_NUMBERS = pattern(r"[0-9]+(?:\.[0-9]+)*")
_COUNT = pattern(r"\s*(==|!=|>=|<=|>|<)?\s*([0-9]{1,9})\s*")
_TRUTH = ("true", "false")
_WRITE_COUNT = "count compares how many it has"
_LARGEST = 10**308
"""Beyond it a whole number is none that can be compared with fractions."""
LONGEST_VERSION = 200
"""No version is longer; longer texts are not read as one."""


class Assertion(NamedTuple):
    """Something that a value must be. needed: in words. holds: raises BadInput if incomparable."""

    needed: str
    holds: Callable[[Any], bool]


def equals(wanted: Any) -> Assertion:
    """Return: is this."""
    return Assertion(worded(wanted), lambda value: same(_of_kind(value, wanted), wanted))


def not_equals(wanted: Any) -> Assertion:
    """Return: is anything but this."""
    return Assertion(
        f"not {worded(wanted)}", lambda value: not same(_of_kind(value, wanted), wanted)
    )


def _of_kind(value: Any, wanted: Any) -> Any:
    """Return the value. Raises BadInput where one of the two is a number and the other true or false."""
    for one, other in ((value, wanted), (wanted, value)):
        if isinstance(one, bool) and isinstance(other, int | float) and not isinstance(other, bool):
            raise BadInput(f"{worded(value)} is never {worded(wanted)}")
    return value


def one_of(wanted: list[Any]) -> Assertion:
    """Return: is one of these."""
    return Assertion(f"one of {_listed(wanted)}", lambda value: any(same(value, x) for x in wanted))


def none_of(wanted: list[Any]) -> Assertion:
    """Return: is none of these."""
    return Assertion(
        f"none of {_listed(wanted)}", lambda value: not any(same(value, x) for x in wanted)
    )


def version(text: str) -> Assertion:
    """Return: a version that fits PEP 440 specifiers; a prerelease counts. Raises ValueError."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{shown(text)} is no version specifier such as '>=9.10,<10'") from None
    if not text.strip():
        raise ValueError("no version specifier stands there, such as '>=9.10,<10'")

    def holds(value: Any) -> bool:
        read = read_version(_single(value))
        if read is None:
            raise BadInput(f"{shown(value)} is no version")
        return specifiers.contains(read, prereleases=True)

    return Assertion(text.strip(), holds)


def read_version(value: Any) -> Any:
    """Return a text as a version, of what PEP 440 does not know its numbers; None where it has none.

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


def compared(sign: str, wanted: str, order: tuple[str, ...], kind: Any) -> Assertion:
    """Return: fits SIGN WANTED, as `backends info --require` compares. Raises ValueError.

    kind: the type that the value is declared to have, None where it is not known.
    """
    samples: dict[Any, Any] = {int: 0, float: 0.5, bool: True}
    if kind is bool and wanted.lower() not in _TRUTH:
        raise ValueError(_about_kind(kind, wanted, order))
    refuse_beyond(wanted)
    try:
        if kind in samples or order:
            comparison.fits(order[0] if order else samples[kind], sign, wanted, order)
    except BadInput as error:
        raise ValueError(
            _about_kind(kind, wanted, order) + (f"; {error.hint}" if error.hint else "")
        ) from None
    needed = wanted if sign in ("==", "===") else f"{sign} {wanted}"
    if order or kind in samples:
        return Assertion(needed, lambda value: comparison.fits(_single(value), sign, wanted, order))
    as_text = _text_compared(sign, wanted, must_be_version=kind is str)

    def holds(value: Any) -> bool:
        if isinstance(value, bool) and wanted.lower() not in _TRUTH:
            raise BadInput(f"{worded(value)} is never {worded(wanted)}")
        if isinstance(value, str):
            return as_text(value)
        return comparison.fits(_single(value), sign, wanted)

    return Assertion(needed, holds)


def _single(value: Any) -> Any:
    """Return the value. Raises BadInput for a list or table, whose length is count's matter."""
    if isinstance(value, list | tuple | dict):
        raise BadInput(f"it is a {'table' if isinstance(value, dict) else 'list'}: {_WRITE_COUNT}")
    return value


def refuse_beyond(wanted: Any) -> None:
    """Raise ValueError for a number, or a list with one, that is larger than any that is compared."""
    for one in wanted if isinstance(wanted, list) else [wanted]:
        if isinstance(one, int) and not -_LARGEST <= one <= _LARGEST:
            raise ValueError(f"a number of {len(str(abs(one)))} digits is larger than any value")
        if isinstance(one, str) and comparison.is_beyond(one):
            raise ValueError(f"{shown(one)} is larger than any value")


def _about_kind(kind: Any, wanted: str, order: tuple[str, ...]) -> str:
    if order:
        near = suggestion(wanted, order)
        return f"{shown(wanted)} is none of {' < '.join(order)}{near}"
    if kind is bool:
        return "the value is true or false: write == true or == false"
    return f"the value is a number, and {shown(wanted)} is none"


def _text_compared(sign: str, wanted: str, *, must_be_version: bool) -> Callable[[str], bool]:
    """Return the comparison of a text: as versions where both are, else only == and !=."""
    is_equality = sign in ("==", "===", "!=")
    try:
        fits = version(f"{sign}{wanted}").holds
    except ValueError:
        if is_equality:
            return lambda value: (value == wanted) is (sign != "!=")
        if must_be_version:
            hint = "; ~= needs two numbers, such as ~= 2.0" if sign == "~=" else ""
            raise ValueError(
                f"{shown(wanted)} is no version, and the value is a text{hint}"
            ) from None
        return lambda value: comparison.fits(value, sign, wanted)
    if is_equality:
        return lambda value: comparison.fits(value, sign, wanted) if value else sign == "!="
    return fits


def bounded(sign: str, wanted: float | str) -> Assertion:
    """Return: a number that is not less (>=) or not more (<=). Raises ValueError for what is no number."""
    needed = f"{'at least' if sign == '>=' else 'at most'} {wanted}"
    if isinstance(wanted, str):
        text = wanted.strip().replace("_", "")
        try:
            comparison.fits(0, sign, text)
        except BadInput:
            raise ValueError(
                f"{shown(wanted)} is no number, and no quantity such as '16GiB'"
            ) from None
        return Assertion(needed, lambda value: comparison.fits(_number(value), sign, text))
    if isnan(wanted):
        raise ValueError("nan is no number to compare with")
    if sign == ">=":
        return Assertion(needed, lambda value: _number(value) >= wanted)
    return Assertion(needed, lambda value: _number(value) <= wanted)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{worded(_single(value))} is no number")
    return value


def matches(text: str) -> Assertion:
    """Return: a text in which a regular expression is found. Raises ValueError."""
    compiled = Pattern(text)

    def holds(value: Any) -> bool:
        if not isinstance(value, str):
            raise BadInput(f"{worded(value)} is no text")
        return compiled.search(value)

    return Assertion(f"a text that matches {shown(text)}", holds)


def contains(wanted: Any) -> Assertion:
    """Return: has this, or of a list all of these, as an element, a key or a part of a text."""
    members = wanted if isinstance(wanted, list) else [wanted]

    def holds(value: Any) -> bool:
        if isinstance(value, str):
            return all(isinstance(each, str) and each in value for each in members)
        if not isinstance(value, list | dict):
            raise BadInput(f"{worded(value)} holds nothing: it is no list, table or text")
        return all(any(same(inside, each) for inside in value) for each in members)

    return Assertion(f"to have {' and '.join(worded(each) for each in members)}", holds)


def counted(wanted: int | str) -> Assertion:
    """Return: a number of elements; called with the number. Raises ValueError."""
    found = _COUNT.fullmatch(str(wanted))
    if not found:
        raise ValueError(f"{shown(wanted)} is no count such as 8 or '>=2'")
    sign, number = found[1] or "==", found[2]
    needed = number if sign == "==" else f"{sign} {number}"
    return Assertion(needed, lambda value: comparison.fits(value, sign, number))


def at_least(word: str, order: tuple[str, ...]) -> Assertion:
    """Return: this word of an order or a higher one. Raises ValueError."""
    if not order:
        raise ValueError("the value has no order; of a number write min, of a version version")
    if word.lower() not in [each.lower() for each in order]:
        raise ValueError(_about_kind(str, word, order))
    return Assertion(
        f"at least {word}", lambda value: comparison.fits(str(value), ">=", word, order)
    )


def same(value: Any, wanted: Any) -> bool:
    """Tell whether two values are equal; true is no 1, and 8 is 8.0."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, list | tuple) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(same(value[key], wanted[key]) for key in value)
    return bool(value == wanted)


def worded(value: Any) -> str:
    """Return a value as a message shows it: texts without quotes where they are one word."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        is_word = value.isprintable() and value and " " not in value and len(value) <= 80
        return value if is_word else shown(value)
    return shown(value)


def _listed(values: list[Any]) -> str:
    return shown([*values]) if len(values) > 8 else ", ".join(worded(each) for each in values)
