"""Where each cache is drawn: with a kind of core, in a node, around a socket, or told in words.

The facts say of each cache how many instances there are and how many CPUs share one, not which.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from mlbackends_cli.catalogue import binary_size
from mlbackends_cli.picture.facts import number, rows, text
from mlbackends_cli.picture.machine import Cache, Cores, Node, Package

_LETTERS = {"data": "d", "instruction": "i"}


class _Listed(Struct, frozen=True):
    """A cache as the facts have it; instances and sharing are 0 where they are not told."""

    name: str
    size_bytes: int
    instances: int
    sharing: int


def placed(facts: Mapping[str, object], packages: list[Package]) -> tuple[list[Package], list[str]]:
    """Return the packages with their caches, and what can only be told of the whole machine."""
    by_name: dict[str, list[_Listed]] = {}
    for row in rows(facts, "caches"):
        level, held = number(row, "level"), number(row, "size_bytes")
        if level and held:
            name = f"L{level}{_LETTERS.get(text(row, 'type'), '')}"
            told = _Listed(name, held, number(row, "instances"), number(row, "shared_by_cpus"))
            by_name.setdefault(name, []).append(told)
    notes: list[str] = []
    for name, listed in by_name.items():
        done = _with_cores(packages, listed) or _in_nodes(packages, listed)
        done = done or _around(packages, listed)
        if done:
            packages = done
        else:
            notes.append(f"{name} {', '.join(_counted(one) for one in listed)}")
    return packages, notes


def _counted(cache: _Listed) -> str:
    count = f"{cache.instances} × " if cache.instances > 1 else ""
    return count + binary_size(cache.size_bytes)


def _all_cores(packages: list[Package]) -> list[Cores]:
    return [cores for package in packages for node in package.nodes for cores in node.cores]


def _with_cores(packages: list[Package], listed: list[_Listed]) -> list[Package] | None:
    """Give each kind of core the cache that each of its cores has of its own; None if that is not so."""
    counts: dict[tuple[str, int], int] = {}
    for cores in _all_cores(packages):
        if not cores.threads:
            return None
        counts[cores.kind, cores.threads] = counts.get((cores.kind, cores.threads), 0) + cores.count
    if len(counts) != len({kind for kind, _ in counts}):
        return None
    wanted = {(count, threads): kind for (kind, threads), count in counts.items()}
    given = {(one.instances, one.sharing): one for one in listed}
    if len(wanted) != len(counts) or len(given) != len(listed) or set(given) != set(wanted):
        return None
    texts = {wanted[key]: f"{one.name} {binary_size(one.size_bytes)}" for key, one in given.items()}
    return [
        replace(
            package,
            nodes=tuple(
                replace(node, cores=tuple(_with_text(cores, texts) for cores in node.cores))
                for node in package.nodes
            ),
        )
        for package in packages
    ]


def _with_text(cores: Cores, texts: dict[str, str]) -> Cores:
    said = texts[cores.kind]
    return replace(cores, caches=f"{cores.caches} · {said}" if cores.caches else said)


def _in_nodes(packages: list[Package], listed: list[_Listed]) -> list[Package] | None:
    """Give each node its share of a cache that CPUs of one node have together."""
    nodes = [node for package in packages for node in package.nodes]
    own = [node for node in nodes if node.threads]
    if len(own) == 1:
        if not all(one.instances for one in listed):
            return None
        found = tuple(Cache(one.name, one.size_bytes, one.instances) for one in listed)
        return [
            replace(package, nodes=tuple(_add(node, found) for node in package.nodes))
            for package in packages
        ]
    shares = _shares([node.threads for node in nodes], listed)
    if shares is None:
        return None
    left = iter(shares)
    return [
        replace(package, nodes=tuple(_add(node, next(left)) for node in package.nodes))
        for package in packages
    ]


def _add(node: Node, found: tuple[Cache, ...]) -> Node:
    return replace(node, caches=node.caches + found) if node.threads else node


def _around(packages: list[Package], listed: list[_Listed]) -> list[Package] | None:
    """Give each socket its share of a cache that CPUs of several of its nodes have together."""
    shares = _shares([sum(node.threads for node in one.nodes) for one in packages], listed)
    if shares is None:
        return None
    return [
        replace(package, caches=package.caches + share)
        for package, share in zip(packages, shares, strict=True)
    ]


def _shares(threads: list[int], listed: list[_Listed]) -> list[tuple[Cache, ...]] | None:
    """Split one size of cache by the threads of each part; None unless it splits without rest."""
    one = listed[0]
    if len(listed) != 1 or not one.instances or not one.sharing:
        return None
    counts = [part // one.sharing for part in threads]
    if any(part % one.sharing for part in threads) or sum(counts) != one.instances:
        return None
    return [(Cache(one.name, one.size_bytes, count),) if count else () for count in counts]
