"""Node sets, as Slurm and ClusterShell write them: node[001-064,070]."""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

from mlbackends.base.errors import BadInput, shown

#: So many nodes may a set have: node[0-999999999] is a slip of the hand.
_MOST = 1_000_000
_NUMBER = re.compile(r"\d+")
_PART = re.compile(r"[^,\[\]\s]*(?:\[[0-9,-]+\][^,\[\]\s]*)*")
_RANGE = re.compile(r"([0-9]{1,63})(?:-([0-9]{1,63}))?")
_BRACKETS = re.compile(r"(?:\[[^\]]*\][^\s,!&^\[\]]*)+")
_WITHIN = re.compile(r"(?<=[\[,])([0-9]{1,63})-([0-9]{1,63})(?![0-9])")
_PLAIN = re.compile(r"[\w.,:@\[\]\s-]*")


def expanded(text: str) -> tuple[str, ...]:
    """Return the names in a node set, each once.

    Groups (@compute) and operators are read by ClusterShell, where it is installed. Raises BadInput.
    """
    if "@" in text or not _PLAIN.fullmatch(text):
        return _by_clustershell(text)
    names: dict[str, None] = {}
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        assert found is not None
        at = found.end()
        if at < len(text) and text[at] not in ", \t\n\r":
            raise BadInput(f"{shown(text)} is no node set: {shown(text[at:][:20])}", _HINT)
        at += 1
        names.update(dict.fromkeys(_named(found[0])))
        if len(names) > _MOST:
            raise _too_many(text)
    return tuple(names)


_HINT = "write it as in node[001-064,070],login1"


def _too_many(text: str) -> BadInput:
    return BadInput(f"{shown(text)} names more than {_MOST:,} nodes, the most that are read")


def _by_clustershell(text: str) -> tuple[str, ...]:
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException
    except ImportError:
        raise BadInput(
            f"{shown(text)}: groups and operators of node sets are read by ClusterShell, which is not here",
            "pip install 'mlbackends[fleet]', or name the nodes: node[001-064,070]",
        ) from None
    # ClusterShell makes every name before it can be asked how many there are.
    for row in _BRACKETS.findall(text):
        sizes = [
            sum(int(last) - int(first) + 1 for first, last in _WITHIN.findall(bracket))
            for bracket in row.split("]")
        ]
        if prod(max(1, size) for size in sizes) > _MOST:
            raise _too_many(text)
    try:
        nodes = NodeSet(text)
        if len(nodes) > _MOST:
            raise _too_many(text)
        return tuple(map(str, nodes))
    except NodeSetException as error:
        raise BadInput(f"{shown(text)} is no node set: {error}", _HINT) from None


def _named(part: str) -> Iterator[str]:
    """Yield the names of one part: rack[1-2]node[01-16] has two brackets."""
    if not part:
        return
    pieces = re.split(r"\[([0-9,-]+)\]", part)
    brackets = [_ranges_in(numbers) for numbers in pieces[1::2]]
    if prod(sum(len(numbers) for numbers, _ in ranges) for ranges in brackets) > _MOST:
        raise _too_many(part)
    for numbers in product(*map(_numbers, brackets)):
        yield "".join(
            piece for pair in zip(pieces[::2], (*numbers, ""), strict=True) for piece in pair
        )


def _ranges_in(text: str) -> list[tuple[range, int]]:
    """Return the ranges in a bracket, each with the width of its first number where that is padded, or 0."""
    found = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(last) < int(first):
            raise BadInput(f"[{text[:40]}] is no list of numbers of nodes", _HINT)
        if int(last) - int(first) >= _MOST:
            raise _too_many(f"[{text}]")
        found.append((range(int(first), int(last) + 1), len(first) if first[0] == "0" else 0))
    return found


def _numbers(ranges: list[tuple[range, int]]) -> Iterator[str]:
    for numbers, width in ranges:
        yield from (f"{number:0{width}}" for number in numbers)


def folded(names: Iterable[str], most: int = 0) -> str:
    """Return names as a node set; the number in which most names differ is folded.

    most: at most so many ranges and names, and how many nodes more there are; 0 for all.
    """
    shapes: dict[tuple[str, str, int], list[int]] = {}
    plain = []
    for name in dict.fromkeys(names):
        # The last number before the domain: node7.cluster2.example.org is node[7], not cluster[2].
        host, dot, domain = name.partition(".")
        numbers = list(_NUMBER.finditer(host))
        if not numbers or len(numbers[-1][0]) > 9:
            plain.append(name)
            continue
        last = numbers[-1]
        width = len(last[0]) if last[0][0] == "0" and len(last[0]) > 1 else 0
        shape = (host[: last.start()], host[last.end() :] + dot + domain, width)
        shapes.setdefault(shape, []).append(int(last[0]))
    return _written(_padded(shapes), plain, most)


def _padded(
    shapes: dict[tuple[str, str, int], list[int]],
) -> dict[tuple[str, str, int], list[int]]:
    """Return the shapes with 100 beside 001 to 099 among those of three digits."""
    widths: dict[tuple[str, str], set[int]] = {}
    for before, after, width in shapes:
        widths.setdefault((before, after), set()).add(width)
    found: dict[tuple[str, str, int], list[int]] = {}
    for (before, after, width), numbers in shapes.items():
        padded = widths[before, after] - {0}
        for number in numbers:
            # Without a leading zero a number is as wide as it is.
            own = width or (len(str(number)) if len(str(number)) in padded else 0)
            found.setdefault((before, after, own), []).append(number)
    return found


def _written(shapes: dict[tuple[str, str, int], list[int]], plain: list[str], most: int) -> str:
    left = most or _MOST
    parts, hidden = [], 0
    for (before, after, width), numbers in sorted(shapes.items()):
        ranges = _ranges(sorted(numbers))
        hidden += sum(last - first + 1 for first, last in ranges[left:])
        texts = [
            f"{first:0{width}}" + (f"-{last:0{width}}" if last > first else "")
            for first, last in ranges[:left]
        ]
        left -= len(texts)
        if texts:
            is_one = len(texts) == 1 and "-" not in texts[0]
            inner = texts[0] if is_one else f"[{','.join(texts)}]"
            parts.append(f"{before}{inner}{after}")
    names = sorted(plain)
    hidden += len(names[left:])
    more = f" and {hidden:,} more" if hidden else ""
    return ",".join(parts + names[:left]) + more


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
