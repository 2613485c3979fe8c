"""Reading facts that may be missing or of another type: a saved report can hold anything."""

from collections.abc import Mapping

_LARGEST = 1 << 62


def number(facts: Mapping[str, object], name: str) -> int:
    """Return a whole number above 0, or 0 where there is none."""
    value = facts.get(name)
    return value if type(value) is int and 0 < value < _LARGEST else 0


def index(facts: Mapping[str, object], name: str) -> int | None:
    """Return a whole number from 0 on, or None where there is none."""
    value = facts.get(name)
    return value if type(value) is int and 0 <= value < _LARGEST else None


def text(facts: Mapping[str, object], name: str) -> str:
    """Return a text, or "" where there is none."""
    value = facts.get(name)
    return value if isinstance(value, str) else ""


def rows(facts: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """Return the records of a list, [] where there is none."""
    value = facts.get(name)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def numbers(facts: Mapping[str, object], name: str) -> list[int]:
    """Return a list of whole numbers from 0 on; [] where it holds anything else."""
    value = facts.get(name)
    if not isinstance(value, list):
        return []
    whole = [one for one in value if type(one) is int and 0 <= one < _LARGEST]
    return whole if len(whole) == len(value) else []
