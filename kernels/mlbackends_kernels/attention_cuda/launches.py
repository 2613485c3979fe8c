"""What is launched for an attention problem: the tile, the grid and the arguments of each pass.

Nothing here touches a device: the tests run the launches on the CPU.
"""

import ctypes
from math import prod
from typing import NamedTuple

from mlbackends.model.problem import ITEM_BYTES, AttentionProblem
from mlbackends_kernels.cuda.device_array import DeviceArray as Operand

WIDTHS = (32, 64, 96, 128, 192, 256)
"""The widths of rows in shared memory; a row of another width has zeros at its end."""

_CHUNK = 16
"""The bytes that a thread copies at once, where rows allow it."""
_MASK_KINDS = {"bool": 1, "float32": 3}
_OF_ELEMENTS = 2
_AMPERE = (8, 0)


class Tile(NamedTuple):
    """The arguments of the template `Tile` of attention.cu, in its order.

    head, value: widths of rows of query and key, and of value. Each of `warps` warps has 16 rows `row_tiles`
    times of one side of the scores, and takes `columns` of the other at a time.
    """

    arithmetic: str
    head: int
    value: int
    row_tiles: int
    columns: int
    warps: int

    @property
    def rows(self) -> int:
        """The rows of a block."""
        return 16 * self.row_tiles * self.warps

    def step(self, width: int) -> int:
        """Return how many elements a row of a width takes in shared memory."""
        return width + (8 if self._item_bytes == 2 else 4)

    @property
    def _item_bytes(self) -> int:
        return 2 if self.arithmetic in ("Float16", "BFloat16") else 4

    def shared_bytes(self, function: str) -> int:
        """Return the shared memory of a block."""
        both = self.step(self.head) + self.step(self.value)
        own = self.step(self.head) if function == "forward" else both
        elements = self.rows * own + self.columns * both
        if self.arithmetic.startswith("Full"):
            elements += self.rows * self.step(self.columns)
        return elements * self._item_bytes


class Launch(NamedTuple):
    """One launch: `function` is a function of attention.cu, call its argument."""

    function: str
    tile: Tile
    grid: int
    call: "Call"


class _Operand(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "head", "row", "column")),
        *((name, ctypes.c_int32) for name in ("batches", "group", "fast", "reserved")),
    )


class Call(ctypes.Structure):
    """The argument of every pass: `Call` of attention.cu."""

    _fields_ = (
        *((name, _Operand) for name in ("query", "key", "value", "mask", "out", "logsumexp")),
        *((f"grad_{name}", _Operand) for name in ("out", "query", "key", "value")),
        ("delta", _Operand),
        *((name, ctypes.c_int32) for name in ("batches", "heads", "rows", "keys")),
        *((name, ctypes.c_int32) for name in ("head_dim", "value_dim", "causal", "shift")),
        ("mask_kind", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


def arithmetic(dtype: str, capability: tuple[int, int], precision: str) -> str:
    """Return how a device multiplies an element type: a name of attention.cu.

    precision: "ieee" for float32 without tensor cores. sm75 has none for float32 and bfloat16.
    """
    if dtype == "float16":
        return "Float16"
    if dtype == "bfloat16":
        return "BFloat16" if capability >= _AMPERE else "FullBFloat16"
    return "ThreeTF32" if capability >= _AMPERE and precision != "ieee" else "FullFloat32"


def shared_limit(capability: tuple[int, int]) -> int:
    """Return the most shared memory that a block takes: what every chip of sm75, or from sm80 on, has."""
    return (99 if capability >= _AMPERE else 64) << 10


def tile_of(function: str, name: str, widths: tuple[int, int], capability: tuple[int, int]) -> Tile:
    """Return the tile of a pass for rows of (E, Ev) elements: the largest that fits shared memory."""
    head, value = (next(each for each in WIDTHS if each >= width) for width in widths)
    narrow = name in ("Float16", "BFloat16")
    largest = max(head, value)
    row_tiles = 2 if narrow and function == "forward" and largest <= 128 else 1
    tile = Tile(name, head, value, row_tiles, 64 if narrow and largest <= 64 else 32, 4)
    while tile.shared_bytes(function) > shared_limit(capability):
        if tile.columns > (16 if narrow else 8):
            tile = tile._replace(columns=tile.columns // 2)
        else:
            tile = tile._replace(warps=tile.warps // 2)
    return tile


def forward(
    problem: AttentionProblem, operands: dict[str, Operand], precision: str
) -> list[Launch]:
    """Return the launches of attention.

    operands: query, key, value, out, and where there is one, mask and logsumexp (B, H, L).
    """
    name = arithmetic(problem.dtype, problem.capability or _AMPERE, precision)
    widths = problem.head_dim, problem.value_dim
    tile = tile_of("forward", name, widths, problem.capability or _AMPERE)
    batches, heads = problem.leading_shape
    grid = _blocks(problem.query_length, tile.rows) * batches * heads
    return [Launch("forward", tile, grid, _call(problem, operands))]


def _call(problem: AttentionProblem, operands: dict[str, Operand]) -> Call:
    batches, heads = problem.leading_shape
    rows, keys, wide = problem.query_length, problem.key_length, problem.head_dim
    scale = (wide or 1) ** -0.5 if problem.scale is None else problem.scale
    call = Call(
        batches=batches,
        heads=heads,
        rows=rows,
        keys=keys,
        head_dim=wide,
        value_dim=problem.value_dim,
        causal=problem.is_causal,
        shift=keys - rows if problem.lower_right else 0,
        scale=scale,
    )
    if problem.mask is not None:
        call.mask_kind = _MASK_KINDS.get(problem.mask.dtype, _OF_ELEMENTS)
    for name, operand in operands.items():
        shape: tuple[int, ...] = (batches, heads, *operand.shape[2:])
        if name == "mask":
            shape = (batches, heads, rows, keys)
        elif name in ("logsumexp", "delta"):
            shape = (batches, heads, rows)
        setattr(call, name, _operand(operand, shape))
    return call


def _operand(operand: Operand, shape: tuple[int, ...]) -> _Operand:
    """Return a tensor that extends to (B, H, rows, width), or (B, H, rows), as the kernels take it."""
    own = (*[1] * (len(shape) - len(operand.shape)), *operand.shape)
    batch, head, row, *rest = operand.steps(shape)
    column = rest[0] if rest else 0
    chunk = _CHUNK // ITEM_BYTES[operand.dtype]
    steps = (batch, head, row, own[-1])
    fast = column == 1 and not operand.pointer % _CHUNK and not any(each % chunk for each in steps)
    return _Operand(
        operand.pointer, batch, head, row, column, own[0], shape[1] // max(own[1], 1), fast
    )


def _blocks(size: int, block: int) -> int:
    return -(-size // block)


def is_empty(problem: AttentionProblem) -> bool:
    """Tell whether nothing is to be computed: the result has no element."""
    return not prod(problem.output_shape)
