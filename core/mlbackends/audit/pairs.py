"""Which library of one report is which of another, and which device.

A label names a pair by what it is: a soname, an address. Where several have the same, their paths or
numbers tell them apart.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from mlbackends.model.records import Device, Library

_Thing = TypeVar("_Thing", Library, Device)
_Key = Callable[[Any], Hashable]


def libraries(
    before: Sequence[Library],
    after: Sequence[Library],
    plain_before: Callable[[Any], Any],
    plain_after: Callable[[Any], Any],
) -> Iterator[tuple[str, Library | None, Library | None]]:
    """Yield each library with its label, matched by soname and path.

    plain_before, plain_after: take the environment's folder out of a path. A copy that is alone with
    its soname on both sides is the same library in another place.
    """
    pairs, left, right = _paired(
        before,
        after,
        lambda one: (one.soname, plain_before(one.path)),
        lambda one: (one.soname, plain_after(one.path)),
    )
    moved = _alone(left) & _alone(right)
    more, left, right = _paired(
        left, right, lambda one: _soname(one) if _soname(one) in moved else None, _soname
    )
    pairs += [*more, *((one, None) for one in left), *((None, one) for one in right)]
    counts = Counter(_soname(one or other) for one, other in pairs)
    for one, other in sorted(pairs, key=lambda pair: _soname(pair[0] or pair[1])):
        label = _soname(one or other)
        if counts[label] > 1:
            label = str(plain_after(other.path) if other else plain_before(one.path))  # type: ignore[union-attr]
        yield label, one, other


def devices(
    before: Sequence[Device], after: Sequence[Device]
) -> Iterator[tuple[str, Device | None, Device | None]]:
    """Yield each device with its label, matched by address, or by number where one has no address."""

    def address(one: Device) -> Hashable:
        return (one.kind, one.pci_address) if one.pci_address else None

    def number(one: Device) -> Hashable:
        return one.kind, one.index

    pairs, left, right = _paired(before, after, address, address)
    more, left, right = _paired(left, right, number, number)
    pairs += [*more, *((one, None) for one in left), *((None, one) for one in right)]
    for one, other in pairs:
        device = other or one
        assert device is not None
        yield device.pci_address or f"{device.kind} {device.index}", one, other


def _paired(
    before: Sequence[_Thing], after: Sequence[_Thing], key_before: _Key, key_after: _Key
) -> tuple[list[tuple[_Thing | None, _Thing | None]], list[_Thing], list[_Thing]]:
    """Pair what has the same key; return the pairs and what is left. A key of None pairs nothing."""
    wanted: dict[Hashable, list[_Thing]] = {}
    for other in after:
        wanted.setdefault(key_after(other), []).append(other)
    pairs: list[tuple[_Thing | None, _Thing | None]] = []
    left = []
    for one in before:
        key = key_before(one)
        if key is not None and wanted.get(key):
            pairs.append((one, wanted[key].pop(0)))
        else:
            left.append(one)
    return pairs, left, [other for others in wanted.values() for other in others]


def _alone(libraries: Sequence[Library]) -> set[str]:
    """Return the sonames that one library alone has."""
    return {name for name, count in Counter(map(_soname, libraries)).items() if count == 1}


def _soname(library: Library | None) -> str:
    assert library is not None
    return library.soname or library.path.rpartition("/")[2]
