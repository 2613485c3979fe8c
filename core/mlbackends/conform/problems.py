"""The problems of `backends conform`, drawn by a seed, and the line that repeats each of them.

    gemm float32 m=64 n=96 k=256 layout=transposed values=nan seed=7

Sizes come first, by their names; layout and values are left out where they are the usual ones.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.quantities import whole_number
from mlbackends.base.tables import table

LAYOUTS = ("contiguous", "transposed", "strided", "zero-stride")
_REPEATED = LAYOUTS[3]
VALUES = ("normal", "subnormal", "large", "nan", "infinite")
DTYPES = ("float64", "float32", "bfloat16", "float16", "complex128", "complex64")
#: By operation, the range of each size.
SIZES: dict[str, dict[str, Sequence[int]]] = table("conform/conform.toml")["sizes"]
_MAY_BE_ZERO = frozenset({"m", "n", "k", "rows", "size", "batch", "padding"})
_MOST_SIZE = 1 << 32
_MOST_WORK = 1 << 28


class ConformityProblem(Struct, frozen=True):
    """One operation on drawn values. sizes: by name. layout, values: one of LAYOUTS and of VALUES."""

    operation: str
    dtype: str
    sizes: dict[str, int]
    layout: str = LAYOUTS[0]
    values: str = VALUES[0]
    seed: int = 0

    @property
    def line(self) -> str:
        """The line that `parse` reads."""
        words = [self.operation, self.dtype, *(f"{name}={size}" for name, size in self.sizes.items())]
        words += [f"layout={self.layout}"] * (self.layout != LAYOUTS[0])
        words += [f"values={self.values}"] * (self.values != VALUES[0])
        return " ".join([*words, f"seed={self.seed}"])

    @property
    def is_edge(self) -> bool:
        """Whether its values or sizes are at the end of what a library has to support."""
        is_empty = any(size == 0 for name, size in self.sizes.items() if name != "padding")
        return is_empty or self.values != VALUES[0] or self.layout == "zero-stride"


def parse(line: str) -> ConformityProblem:
    """Return the problem of a line. Raises BadInput and UnknownName."""
    operation, dtype, *words = [*line.split(), "", ""]
    given = {name: text for name, _, text in (word.partition("=") for word in words if word)}
    layout, values = given.pop("layout", LAYOUTS[0]), given.pop("values", VALUES[0])
    for kind, word, known in (
        ("operation", operation, tuple(SIZES)),
        ("element type", dtype, DTYPES),
        ("layout", layout, LAYOUTS),
        ("kind of values", values, VALUES),
    ):
        if word not in known:
            raise UnknownName(kind, word, known)
    limits = SIZES[operation]
    seed = whole_number(given.pop("seed", "0"), 0, _MOST_SIZE)
    read = {name: whole_number(given.get(name, ""), name not in _MAY_BE_ZERO, _MOST_SIZE) for name in limits}
    sizes = {name: size for name, size in read.items() if size is not None}
    work = math.prod(max(size, 1) for size in sizes.values()) if layout != _REPEATED else 1
    if given.keys() != limits.keys() or len(sizes) < len(limits) or seed is None:
        example = " ".join(f"{name}={high}" for name, (_, high) in limits.items())
        raise BadInput(f"{line[:80]!r} is not a problem", f"{operation} {dtype} {example} seed=0 is one")
    if layout == _REPEATED and operation != "sum":
        raise BadInput(f"{line[:80]!r}: only sum has layout={_REPEATED}")
    if "kernel" in sizes and sizes["kernel"] > min(sizes["height"], sizes["width"]) + 2 * sizes["padding"]:
        raise BadInput(f"{line[:80]!r}: the kernel is larger than the image with its padding")
    if work > _MOST_WORK:
        raise BadInput(f"{line[:80]!r} is too large: its exact result would take minutes")
    return ConformityProblem(operation, dtype, sizes, layout, values, seed)


def draw(
    seed: int, offered: Mapping[str, Sequence[str]], count: int, *, has_layouts: bool, edges: bool
) -> Iterator[ConformityProblem]:
    """Yield `count` problems for each operation and element type that a library offers, and edges."""
    for operation, dtype in ((name, dtype) for name, dtypes in offered.items() for dtype in dtypes):
        # Each has its own generator, so that every library gets the same problems.
        generator = random.Random(f"{seed} {operation} {dtype}")  # noqa: S311  no secret
        for _ in range(count):
            sizes = {name: generator.randint(*limits) for name, limits in SIZES[operation].items()}
            layout = generator.choice(LAYOUTS[:3])
            yield ConformityProblem(
                operation, dtype, sizes, layout if has_layouts else LAYOUTS[0], seed=generator.randrange(1000)
            )
        if edges:
            yield from _edges(operation, dtype, has_layouts=has_layouts)


def _edges(operation: str, dtype: str, *, has_layouts: bool) -> Iterator[ConformityProblem]:
    """Yield the problems at the edges of an operation."""
    small = {name: max(low, min(high, 7)) for name, (low, high) in SIZES[operation].items()}
    if operation in ("gemm", "sum", "exp", "softmax"):
        yield ConformityProblem(operation, dtype, small | {"k" if operation == "gemm" else "rows": 0})
    kinds = {"softmax": "subnormal nan large", "exp": "subnormal nan infinite large", "log": "nan infinite"}
    if not dtype.startswith("complex") and operation not in ("convolution", "attention", "layer-norm"):
        for values in kinds.get(operation, "subnormal nan infinite").split():
            yield ConformityProblem(operation, dtype, small, values=values, seed=1)
    if has_layouts and operation == "sum" and dtype == "float32":
        yield ConformityProblem(operation, dtype, {"rows": 1, "size": (1 << 31) + 8}, _REPEATED, seed=1)
