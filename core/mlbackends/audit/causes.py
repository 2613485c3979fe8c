"""Changes for people: those that have one cause together, and lists record by record."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from mlbackends.audit.canonical import encoded
from mlbackends.model.difference import Change, Kind

_PACKAGES = "packages.distributions."
_LABEL = re.compile(r"\[([^\[\]]*)\]")
_TELLING_NUMBER, _TELLING_LENGTH = 10, 4
_MOST_LABELS = 3
#: What names a record of a list: a level and a type name a cache, a name and a path a compiler.
_KEYS = (
    *("package", "library", "runtime", "name", "path", "file", "folder", "address", "node", "gpu"),
    *("gpus", "first", "second", "level", "type", "page_bytes"),
)


class Cause(NamedTuple):
    """Changes that are one. change: the worst, of the shortest name; others: the names of the rest."""

    change: Change
    others: tuple[str, ...]


class Record(NamedTuple):
    """One record of a list that was added, removed or changed: its key, and the fields that differ."""

    kind: Kind
    key: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]


def causes(changes: Sequence[Change]) -> list[Cause]:
    """Return the changes, joined if they have the same values: a new driver changes six facts.

    Short values are too common for that: only the same fact of several devices or copies is joined then.
    Packages that are only added or removed together are not joined.
    """
    elsewhere = {_values(change) for change in changes if not change.name.startswith(_PACKAGES)}
    groups: dict[object, list[Change]] = {}
    for change in changes:
        values = _values(change)
        is_package = change.name.startswith(_PACKAGES)
        key = (values, "" if _is_telling(change) else _LABEL.sub("", change.name))
        if is_package and values not in elsewhere:
            key = (values, change.name)
        groups.setdefault(key, []).append(change)
    found = []
    for group in groups.values():
        first = min(group, key=lambda one: (-one.severity.level, "[" in one.name, len(one.name)))
        probe = first.name.partition(".")[0]
        names = [change.name for change in group if change is not first]
        own = [name for name in names if name.startswith(f"{probe}.")]
        others = own + [name for name in names if name not in own]
        found.append(Cause(first, tuple(others)))
    return found


def _values(change: Change) -> tuple[object, ...]:
    is_plain = (isinstance(value, str | int | float) for value in (change.before, change.after))
    if all(is_plain) and not isinstance(change.before, bool):
        return change.kind, change.before, change.after  # 64 is 64.0
    return change.kind, encoded((change.before, change.after))


def _is_telling(change: Change) -> bool:
    """Return whether equal values of two changes are unlikely to be chance."""
    values = [value for value in (change.before, change.after) if value is not None]
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        return change.kind is Kind.CHANGED and max(numbers) >= _TELLING_NUMBER
    texts = [value for value in values if isinstance(value, str)]
    is_long = any(len(text) >= _TELLING_LENGTH and re.search(r"\d|/", text) for text in texts)
    return len(texts) == len(values) and is_long


def joined(names: Iterable[str]) -> list[str]:
    """Return names, as one where they differ by a label alone: nvidia.devices[0, 1 and 6 more].driver."""
    labels: dict[str, list[str]] = {}
    for name in names:
        match = _LABEL.search(name)
        shape = _LABEL.sub("[]", name, count=1) if match else name
        labels.setdefault(shape, []).append(match[1] if match else "")
    shown = []
    for shape, own in labels.items():
        more = f" and {len(own) - _MOST_LABELS} more" if len(own) > _MOST_LABELS else ""
        shown.append(shape.replace("[]", f"[{', '.join(own[:_MOST_LABELS])}{more}]", 1))
    return shown


def records(change: Change) -> list[Record]:
    """Return what changed in a list, by record; in one of text what left and what came. [] for no list."""
    was, now = change.before or [], change.after or []
    if not (isinstance(was, list) and isinstance(now, list)):
        return []
    if all(isinstance(row, dict) for row in (*was, *now)):
        return list(_paired(was, now))
    removed, added = Record(Kind.REMOVED, {}, {"": was}, {}), Record(Kind.ADDED, {}, {}, {"": now})
    return [removed, added] if was and now else []


def _paired(was: list[Any], now: list[Any]) -> Iterator[Record]:
    """Yield records of the same key as one, where both lists have one of it."""
    sides: tuple[dict[bytes, list[Any]], ...] = ({}, {})
    for side, records in zip(sides, (was, now), strict=True):
        for record in records:
            side.setdefault(msgspec.json.encode(_key(record)), []).append(record)
    for key in {**sides[0], **sides[1]}:
        removed, added = (side.get(key, []) for side in sides)
        if len(removed) == len(added) == 1:
            (old,), (new,) = removed, added
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            both = ({name: side[name] for name in names if name in side} for side in (old, new))
            if names:
                yield Record(Kind.CHANGED, _key(old), *both)
            continue
        yield from (Record(Kind.REMOVED, _key(row), _rest(row), {}) for row in removed)
        yield from (Record(Kind.ADDED, _key(row), {}, _rest(row)) for row in added)


def _key(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in _KEYS if name in record}


def _rest(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _KEYS}


def text_of(record: Record, amount: Callable[[str, Any], str]) -> str:
    """Return a record on one line. amount: returns a field's value for people, by its name."""
    key = " ".join(
        f"{name} {value}" if isinstance(value, int) else amount(name, value)
        for name, value in record.key.items()
    )
    fields = []
    for name in {**record.before, **record.after}:
        values = [amount(name, side[name]) for side in record[2:] if name in side]
        fields.append(f"{name} {' → '.join(values)}".strip())
    return ": ".join(filter(None, (key, ", ".join(fields))))
