"""What is the time of a call: a number of nanoseconds that is not negative and not beyond all sense."""

from mlbackends.tracing.numbers import number

LONGEST = 1e27
"""Nanoseconds, twice the age of the universe: a longer time is damage, and would swallow all sums."""


def is_time(value: float) -> bool:
    """Tell whether so many nanoseconds can be a call's time; "nan" is none."""
    return 0 <= value <= LONGEST


def nanoseconds(text: str, unit: float) -> float | None:
    """Return the time that a line tells, in any locale, None if it is none. unit: in nanoseconds."""
    found = number(text)
    if found is None or not is_time(found * unit):
        return None
    return found * unit
