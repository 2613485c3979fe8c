"""Numbers in lines whose separator is a comma, printed where the decimal point is a comma too.

A program that calls setlocale() makes oneDNN and MKL print "1,146" for 1.146, and a field then looks
like two. Fields are rejoined so that their number and their contents match the format.
A duration is a number of nanoseconds that is not negative and not beyond all sense.
"""

import re
from collections.abc import Callable
from itertools import combinations

_WHOLE = re.compile(r"(?:.*[: +])?[-+]?\d+")
_FRACTION = re.compile(r"\d+(?:e[-+]\d+)?(?:[: +].*)?")
_LIMIT = 6

_SIZE = re.compile(r"-?[0-9]{1,18}")
#: Nanoseconds, twice the age of the universe: a longer time is damage, and would swallow all sums.
LONGEST = 1e27


def whole_number(text: str) -> int | None:
    """Return the number that a text is, None for what is none or needs more than 64 bits: damage."""
    return int(text) if _SIZE.fullmatch(text) else None


def is_time(value: float) -> bool:
    """Return whether a number of nanoseconds can be a call's time; "nan" cannot."""
    return 0 <= value <= LONGEST


def is_stamp(digits: bytes) -> bool:
    """Return whether digits can be nanoseconds since the epoch, in 63 bits."""
    return digits.isdigit() and len(digits) - (digits < b"92") < 19


def nanoseconds(text: str, unit: float) -> float | None:
    """Return a printed time in nanoseconds, in any locale, or None. unit: in nanoseconds."""
    try:
        value = float(text) * unit
    except ValueError:
        try:
            value = float(text.replace(",", ".", 1)) * unit
        except ValueError:
            return None
    return value if is_time(value) else None


def rejoined(fields: list[str], count: int, possible: Callable[[list[str]], bool]) -> list[str] | None:
    """Return the fields with decimal commas put back, so that there are `count` of them.

    possible: whether fields so joined can be what they should be; None if no way is. Of several
    ways the one furthest to the right is taken: times are printed by C, which obeys the locale,
    attributes by C++ streams, which do not unless they are set to.
    """
    excess = len(fields) - count
    if excess == 0:
        return fields if possible(fields) else None
    places = [
        index
        for index in range(len(fields) - 1)
        if _WHOLE.fullmatch(fields[index]) and _FRACTION.fullmatch(fields[index + 1])
    ]
    if not 0 < excess <= min(len(places), _LIMIT) or len(places) > 2 * _LIMIT:
        return None
    ways = []
    for chosen in combinations(places, excess):
        way = [fields[0]]
        for index, field in enumerate(fields[1:]):
            if index in chosen:
                way[-1] += f",{field}"
            else:
                way.append(field)
        ways.append(way)
    fitting = [way for way in ways if possible(way)]
    return fitting[-1] if fitting else None
