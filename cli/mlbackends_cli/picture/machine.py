"""What the picture shows of processors and memory, as records."""

from msgspec import Struct


class Cores(Struct, frozen=True):
    """Cores that are alike. threads: of each, 0 if the squares are threads whose cores are not told."""

    kind: str
    count: int
    threads: int
    caches: str = ""


class Cache(Struct, frozen=True):
    """Caches of one size that several cores share: "L3", their size, and how many are here."""

    name: str
    size_bytes: int
    count: int


class Node(Struct, frozen=True):
    """A NUMA node; number is None where the machine has one memory, or tells of no nodes."""

    number: int | None
    cpus: tuple[int, ...]
    threads: int
    cores: tuple[Cores, ...]
    memory_bytes: int
    caches: tuple[Cache, ...] = ()


class Package(Struct, frozen=True):
    """What is drawn in one frame: a socket, or several of which more is not told."""

    title: str
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...] = ()


class Processors(Struct, frozen=True):
    """All of it. notes: what is known of the machine and belongs to no single frame."""

    title: str
    packages: tuple[Package, ...]
    notes: tuple[str, ...]
