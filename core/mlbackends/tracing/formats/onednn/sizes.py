"""The sizes in a problem descriptor.

    mb4_ic3oc16_ih64oh64kh3sh1dh0ph1_iw64ow64kw3sw1dw0pw1       named
    m128n64k256                                                 named: matmul in 1.x to 2.3
    128x256:256x64                                              one list a tensor
    g2mb4ic16_ih8                                               groups first

`*` is a size that is only known when it runs; what holds one has no sizes here.
"""

import re
from functools import lru_cache
from math import prod

_PAIR = re.compile(r"([a-z]+)(\d+)")
_NAMED = re.compile(r"(?:_?[a-z]+\d+)+_?")
_LIST = re.compile(r"\d+(?:x\d+)*")
Dims = tuple[int, ...]


@lru_cache(maxsize=4096)
def named_sizes(problem: str) -> dict[str, int] | None:
    """Return sizes by name, None where the problem has none such; 1.x's `ic3oc16` may start with `g1`."""
    if len(problem) > 1000 or _NAMED.fullmatch(problem) is None:
        return None
    return {name: int(size) for name, size in _PAIR.findall(problem)}


@lru_cache(maxsize=4096)
def listed_sizes(problem: str) -> tuple[Dims, ...] | None:
    """Return the sizes of each tensor, None where the problem does not list them."""
    parts = problem.split(":")
    if any(len(part) > 400 or _LIST.fullmatch(part) is None for part in parts):
        return None
    return tuple(tuple(int(size) for size in part.split("x")) for part in parts)


def elements(dims: Dims) -> int:
    """Return how many elements a tensor has."""
    return prod(dims)


def broadcast(left: Dims, right: Dims) -> Dims:
    """Return the sizes of two tensors together, where 1 stretches."""
    return tuple(max(pair) for pair in zip(left, right, strict=False))
