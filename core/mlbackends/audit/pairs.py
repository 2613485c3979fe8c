"""Which library of one report is which of another, and which device.

A label names a pair by what it is: a soname, an address. Where several have the same, their paths or
numbers distinguish them.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from mlbackends.base.patterns import pattern
from mlbackends.model.records import Device, Library

#: What auditwheel and delvewheel add to the name of a library that a wheel includes: a hash of its content.
_HASH = pattern(r"(?:-[0-9a-f]{8,64})+(?=\.)")

_Entry = TypeVar("_Entry", Library, Device)


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
    keys = {id(entry): (_soname(entry), plain_before(entry.path)) for entry in before}
    keys |= {id(entry): (_soname(entry), plain_after(entry.path)) for entry in after}
    old, new = (Counter(keys[id(library)] for library in side) for side in (before, after))
    left, right = (Counter(name for name, _ in side.elements()) for side in (old - new, new - old))
    pairs = _paired(
        before,
        after,
        lambda library: keys[id(library)],
        lambda library: soname if left[soname := _soname(library)] == right[soname] == 1 else None,
    )
    named = [(_soname(library or other), library, other) for library, other in pairs]
    counts = Counter(name for name, _, _ in named)
    for name, was, now in sorted(named, key=lambda pair: pair[0]):
        yield name if counts[name] == 1 else str(keys[id(now or was)][1]), was, now


def devices(
    before: Sequence[Device], after: Sequence[Device]
) -> Iterator[tuple[str, Device | None, Device | None]]:
    """Yield each device with its label, matched by address, or by number where one has no address."""
    pairs = _paired(
        before,
        after,
        lambda device: (device.kind, device.pci_address) if device.pci_address else None,
        lambda device: (device.kind, device.index),
    )
    for was, now in pairs:
        device = now or was
        assert device is not None
        yield device.pci_address or f"{device.kind} {device.index}", was, now


def _paired(
    before: Sequence[_Entry], after: Sequence[_Entry], *keys: Callable[[_Entry], Hashable]
) -> list[tuple[_Entry | None, _Entry | None]]:
    """Pair what has the same key, one key after the other; a key of None pairs nothing."""
    pairs: list[tuple[_Entry | None, _Entry | None]] = []
    left: list[_Entry] = list(before)
    right: list[_Entry] = list(after)
    for key in keys:
        waiting: dict[Hashable, list[_Entry]] = {}
        for other in right:
            waiting.setdefault(key(other), []).append(other)
        unmatched = []
        for candidate in left:
            if key(candidate) is not None and (candidates := waiting.get(key(candidate))):
                pairs.append((candidate, candidates.pop(0)))
            else:
                unmatched.append(candidate)
        left, right = unmatched, [other for candidates in waiting.values() for other in candidates]
    pairs += [(candidate, None) for candidate in left]
    return pairs + [(None, other) for other in right]


def _soname(library: Library | None) -> str:
    assert library is not None
    return _HASH.sub("", library.soname or library.path.rpartition("/")[2])
