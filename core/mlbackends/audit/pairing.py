"""Which library of one report is which of another, and which device.

A label names a pair by what it is: a soname, an address. Where several have the same, their paths or
numbers tell them apart.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from mlbackends.model.records import Device, Library

_Thing = TypeVar("_Thing")
_Pair = tuple[_Thing | None, _Thing | None]
_Key = Callable[[_Thing], Hashable]


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
    same_place = (
        lambda one: (one.soname, plain_before(one.path)),
        lambda one: (one.soname, plain_after(one.path)),
    )
    pairs, left, right = _paired(before, after, same_place)
    moved = _alone(left) & _alone(right)
    by_soname = (
        lambda one: soname if (soname := _soname(one)) in moved else None,
        _soname,
    )
    more, left, right = _paired(left, right, by_soname)
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
    pairs, left, right = _paired(before, after, (_address, _address))
    more, left, right = _paired(left, right, (_number, _number))
    pairs += [*more, *((one, None) for one in left), *((None, one) for one in right)]
    for one, other in pairs:
        told = other or one
        assert told is not None
        yield told.pci_address or f"{told.kind} {told.index}", one, other


def _paired(
    before: Sequence[_Thing], after: Sequence[_Thing], keys: tuple[_Key[_Thing], _Key[_Thing]]
) -> tuple[list[_Pair[_Thing]], list[_Thing], list[_Thing]]:
    """Pair what has the same key; return the pairs and what is left on each side.

    keys: that of the one side and that of the other; a key of None pairs nothing.
    """
    wanted: dict[Hashable, list[_Thing]] = {}
    for other in after:
        wanted.setdefault(keys[1](other), []).append(other)
    pairs: list[_Pair[_Thing]] = []
    left = []
    for one in before:
        key = keys[0](one)
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


def _address(device: Device) -> Hashable:
    return (device.kind, device.pci_address) if device.pci_address else None


def _number(device: Device) -> Hashable:
    return device.kind, device.index
