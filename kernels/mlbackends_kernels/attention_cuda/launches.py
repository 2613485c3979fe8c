"""The launches of an attention problem: the tile, the grid and the arguments of each pass.

Nothing here uses a device: the tests run the launches on the CPU.
"""

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, Protocol

from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.model.problem import AttentionProblem

#: The widths of rows in shared memory; a row of another width has zeros at its end.
WIDTHS = (32, 64, 96, 128, 192, 256)

#: The bytes that a thread copies at once if rows are aligned.
_CHUNK = 16
#: The number of keys on one side of a row that sees all of them.
_ALL = 1 << 30
_MASK_KINDS = {"bool": 1, "float32": 3}
_OF_ELEMENTS = 2
_AMPERE = (8, 0)


#: The pass of mask.cu.
OF_MASK = "differentiate_mask"


class Tensor(Protocol):
    """Elements at an address; strides count elements. dtype: by torch's name."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Tile(NamedTuple):
    """The arguments of the template `Tile` of attention.cu, in its order.

    head, value: widths of rows of query and key, and of value. Each of `warps` warps computes
    `row_tiles` times 16 rows of the scores, and `columns` columns at a time.
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
        """Return the number of elements of a row in shared memory, with padding."""
        return width + (8 if self._item_bytes == 2 else 4)

    @property
    def _item_bytes(self) -> int:
        return 2 if self.arithmetic in ("Float16", "BFloat16") else 4

    def shared_bytes(self, function: str) -> int:
        """Return the shared memory of a block."""
        if function in ("summarize", "differentiate_sinks"):
            return 4 * self.warps
        both = self.step(self.head) + self.step(self.value)
        own = self.step(self.head) if function == "forward" else both
        elements = self.rows * own + self.columns * both
        if function == OF_MASK:
            return max(elements * self._item_bytes, self.rows * self.columns * 4)
        if self.arithmetic.startswith("Full"):
            elements += self.rows * self.step(self.columns)
        return elements * self._item_bytes


class Launch(NamedTuple):
    """One launch: `function` is a function of attention.cu or mask.cu.

    call: its argument. whole: the argument of the gradient of a mask, which includes call.
    """

    function: str
    tile: Tile
    grid: int
    call: "Call"
    whole: "MaskCall | None" = None


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
        *((name, _Operand) for name in ("summary", "sinks", "grad_sinks")),
        *((name, ctypes.c_int32) for name in ("batches", "heads", "rows", "keys")),
        *((name, ctypes.c_int32) for name in ("head_dim", "value_dim", "shift", "left", "right")),
        *((name, ctypes.c_int32) for name in ("mask_kind", "sink_kind")),
        *((name, ctypes.c_float) for name in ("scale", "softcap")),
    )


class MaskCall(ctypes.Structure):
    """The argument of the gradient of a mask: `MaskCall` of mask.cu."""

    _fields_ = (("call", Call), ("grad_mask", _Operand))


def macros(function: str, tile: Tile) -> tuple[tuple[str, str], ...]:
    """Return the macros of attention.cu, or mask.cu, for a pass."""
    arguments = ",".join(map(str, tile))
    if function == OF_MASK:
        return (("MASK_TILE", arguments),)
    return ("PASS", function), ("TILE", arguments)


def arithmetic(dtype: str, capability: tuple[int, int], precision: str) -> str:
    """Return how a device multiplies an element type: a name of attention.cu.

    precision: "ieee" for float32 without tensor cores. On sm75 they support neither float32 nor bfloat16.
    """
    if dtype == "float16":
        return "Float16"
    if dtype == "bfloat16":
        return "BFloat16" if capability >= _AMPERE else "FullBFloat16"
    return "ThreeTF32" if capability >= _AMPERE and precision != "ieee" else "FullFloat32"


def shared_limit(capability: tuple[int, int]) -> int:
    """Return the most shared memory of a block: what every chip of sm75, or from sm80 on, has."""
    return (99 if capability >= _AMPERE else 64) << 10


@cache
def tile_of(function: str, name: str, widths: tuple[int, int], capability: tuple[int, int]) -> Tile:
    """Return the tile of a pass for rows of (E, Ev) elements: the largest that fits shared memory."""
    head, value = (next(known for known in WIDTHS if known >= width) for width in widths)
    narrow, is_forward = name in ("Float16", "BFloat16"), function == "forward"
    largest = max(head, value)
    row_tiles = 2 if narrow and is_forward and largest <= 128 else 1
    columns = 64 if narrow and is_forward and largest <= 64 else 32
    if name == "ThreeTF32" and not is_forward:
        columns = 16
    tile = Tile(name, head, value, row_tiles, columns, 4)
    while tile.shared_bytes(function) > shared_limit(capability):
        if tile.columns > (16 if narrow else 8):
            tile = tile._replace(columns=tile.columns // 2)
        else:
            tile = tile._replace(warps=tile.warps // 2)
    return tile


def forward(problem: AttentionProblem, tensors: Mapping[str, Tensor], precision: str) -> list[Launch]:
    """Return the launches of attention.

    tensors: query, key, value, out, and if present, mask, sinks and logsumexp (B, H, L).
    """
    name = arithmetic(problem.dtype, problem.capability or _AMPERE, precision)
    widths = problem.head_dim, problem.value_dim
    tile = tile_of("forward", name, widths, problem.capability or _AMPERE)
    batches, heads = problem.leading_shape
    grid = blocks_of(problem.query_length, tile.rows) * batches * heads
    return [Launch("forward", tile, grid, call_of(problem, tensors))]


def backward(problem: AttentionProblem, tensors: Mapping[str, Tensor], precision: str) -> list[Launch]:
    """Return the launches of the gradients.

    tensors: query, key, value, out, logsumexp, grad_out, grad_query, grad_key, grad_value, summary
    (B, H, L, 4) of float32, which the first launch fills, and if present, mask, sinks, grad_sinks and
    grad_mask.
    """
    capability = problem.capability or _AMPERE
    name = arithmetic(problem.dtype, capability, precision)
    widths = problem.head_dim, problem.value_dim
    call = call_of(problem, tensors)

    def launch(function: str, units: int, length: int) -> Launch:
        tile = tile_of(function, name, widths, capability)
        return Launch(function, tile, blocks_of(length, tile.rows) * units, call)

    query, key, value = problem.query.shape, problem.key.shape, problem.value.shape
    rows = call.batches * call.heads * call.rows
    summary = tile_of("summarize", name, (0, 0), capability)
    keys = [("differentiate_key", key), ("differentiate_value", value)]
    if key[:2] == value[:2] and sum(widths) <= (128 if name == "ThreeTF32" else 256):
        keys = [("differentiate_both", key)]
    masks = []
    if (mask := tensors.get("grad_mask")) is not None:
        batches, own_heads, down, across = (*[1] * (4 - len(mask.shape)), *mask.shape)
        tile = tile_of(OF_MASK, name, widths, capability)
        units = batches * own_heads * blocks_of(down, tile.rows) * blocks_of(across, tile.columns)
        masks = [Launch(OF_MASK, tile, units, call, MaskCall(call, _operand(mask, call.heads, 4)))]
    sinks = [Launch("differentiate_sinks", summary, call.heads, call)]
    return [
        Launch("summarize", summary, blocks_of(rows, summary.warps), call),
        *(sinks if "grad_sinks" in tensors else ()),
        *masks,
        launch("differentiate_query", query[0] * query[1], query[2]),
        *(launch(function, shape[0] * shape[1], shape[2]) for function, shape in keys),
    ]


def call_of(problem: AttentionProblem, tensors: Mapping[str, Tensor]) -> Call:
    """Return the argument of every pass."""
    batches, heads = problem.leading_shape
    rows, keys, wide = problem.query_length, problem.key_length, problem.head_dim
    scale = (wide or 1) ** -0.5 if problem.scale is None else problem.scale
    left, right = (_ALL if side < 0 else min(side, _ALL) for side in problem.band)
    call = Call(
        batches=batches,
        heads=heads,
        rows=rows,
        keys=keys,
        head_dim=wide,
        value_dim=problem.value_dim,
        shift=keys - rows if problem.lower_right else 0,
        left=left,
        right=right,
        scale=scale,
        softcap=problem.softcap,
    )
    if problem.mask is not None:
        call.mask_kind = _MASK_KINDS.get(problem.mask.dtype, _OF_ELEMENTS)
    if problem.sinks is not None:
        call.sink_kind = _MASK_KINDS.get(problem.sinks.dtype, _OF_ELEMENTS)
    for name, tensor in tensors.items():
        if name == "grad_mask":
            continue
        if name.endswith("sinks"):
            setattr(call, name, _Operand(tensor.pointer, head=tensor.strides[0]))
        else:
            setattr(call, name, _operand(tensor, heads, 3 if name == "logsumexp" else 4))
    return call


def _operand(tensor: Tensor, heads: int, rank: int) -> _Operand:
    """Return a tensor for the kernels, broadcast to (B, H, rows, width) or (B, H, rows)."""
    missing = rank - len(tensor.shape)
    shape = (*[1] * missing, *tensor.shape)
    own = zip(tensor.shape, tensor.strides, strict=True)
    steps = (*[0] * missing, *(0 if size == 1 else step for size, step in own), 0)[:4]
    chunk = _CHUNK // ITEM_BYTES[tensor.dtype]
    fast = steps[3] == 1 and not tensor.pointer % _CHUNK
    fast = fast and not any(step % chunk for step in (*steps[:3], shape[-1]))
    return _Operand(tensor.pointer, *steps, shape[0], max(heads // max(shape[1], 1), 1), fast)


def blocks_of(size: int, block: int) -> int:
    """Return the number of blocks that cover a size."""
    return -(-size // block)
