"""What flash_cuda launches for an attention problem: the kernel, the grid and the argument of each pass.

Nothing here touches a device: the tests run the launches on the CPU.
"""

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from mlbackends.model.problem import AttentionProblem
from mlbackends_kernels.attention_cuda import launches as passes
from mlbackends_kernels.attention_cuda.launches import Call, Tensor, Tile, blocks_of, tile_of
from mlbackends_kernels.attention_flash.chips import chip_of

#: The widths of rows in shared memory: the smallest that E and Ev fit is taken.
WIDTHS = (64, 128, 256)
ARITHMETICS = {"float16": "Float16", "bfloat16": "BFloat16"}

#: Chips whose block has 99 KiB of shared memory; the others have 163 or more.
_SMALL_SHARED = (86, 89, 120)
_FORWARD = ("flash_long", "flash_short", "flash_combine")
#: The widest rows whose gradients of key and value are one pass.
_WIDEST_OF_BOTH = 128
_FEWEST_KEYS = 256
_MOST_PARTS = 64
#: The blocks for a multiprocessor up to which keys are taken in parts.
_WAVES = {"flash_long": 2, "flash_short": 4}


class FlashTile(NamedTuple):
    """The arguments of the template `Flash` of flash.cu after its element type, in its order."""

    width: int
    row_tiles: int
    columns: int
    warps: int
    teams: int = 1
    stages: int = 2

    @property
    def rows(self) -> int:
        """The rows of a block."""
        return 16 * self.row_tiles * self.warps // self.teams

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: the query's rows, and each team's tiles of keys and values."""
        return 2 * (self.width + 8) * (self.rows + self.teams * self.stages * 2 * self.columns)


class Span(ctypes.Structure):
    """One sequence: `Span` of flash.cu."""

    _fields_ = tuple((name, ctypes.c_int32) for name in ("row", "rows", "key", "keys"))


class Serving(ctypes.Structure):
    """The argument of the forward passes: `Serving` of flash.cu."""

    _fields_ = (
        ("call", Call),
        *((name, ctypes.c_void_p) for name in ("spans", "pages", "partial", "logarithms")),
        *((name, ctypes.c_int64) for name in ("page_step", "page_across")),
        *((name, ctypes.c_int32) for name in ("page_size", "sequences", "blocks", "pack")),
        *((name, ctypes.c_int32) for name in ("parts", "lower_right")),
    )


_OF_SERVING = {
    "spans": "spans",
    "page_table": "pages",
    "partial": "partial",
    "logarithms": "logarithms",
}
#: Where in a Serving, and those of its Call in a Call, the address of each tensor stands.
OFFSETS = passes.OFFSETS | {
    name: getattr(Serving, field).offset for name, field in _OF_SERVING.items()
}


#: The passes of the gradients before those of query, key and value.
OF_ROWS = ("flash_summarize", "flash_differentiate_sinks")


class Launch(NamedTuple):
    """One launch of a kernel of flash.cu, by its name, for rows of a width."""

    kernel: str
    width: int
    grid: int
    argument: Serving | Call


class Block(NamedTuple):
    """What a kernel is launched with: threads and bytes of shared memory of a block, and its argument."""

    threads: int
    shared: int
    argument: str


class Plan(NamedTuple):
    """How the forward of a problem is cut: a kernel, its tile, heads in a tile, and parts of the keys."""

    kernel: str
    tile: FlashTile
    pack: int
    blocks: int
    parts: int


def width_of(problem: AttentionProblem) -> int:
    """Return the width of the tiles of a problem."""
    return next(each for each in WIDTHS if each >= max(problem.head_dim, problem.value_dim))


@cache
def long_tile(width: int, chip: int) -> FlashTile:
    """Return the tile of flash_long: many rows, whose warps share the keys."""
    is_small = chip in _SMALL_SHARED
    if width == 64:
        return FlashTile(width, 2, 32 if is_small else 64, 4)
    if width == 128 and not is_small:
        return FlashTile(width, 2, 32, 4)
    return FlashTile(width, 1, 16 if is_small and width > 128 else 32, 8)


@cache
def short_tile(width: int) -> FlashTile:
    """Return the tile of flash_short: 16 rows, whose warps share them and take each its own keys."""
    warps = 4 if width <= 128 else 2
    return FlashTile(width, 1, 16, warps, warps)


def back_tile(width: int) -> Tile:
    """Return the tile of the passes of attention.cu, for each chip the same."""
    return tile_of("differentiate_both", "Float16", (width, width), (8, 0))


def kernels(width: int) -> tuple[str, ...]:
    """Return the kernels of flash.cu that are compiled for rows of a width."""
    keys = ("both",) if width <= _WIDEST_OF_BOTH else ("key", "value")
    passes = ("summarize", *(f"differentiate_{each}" for each in ("query", "sinks", *keys)))
    return (*_FORWARD, *(f"flash_{each}" for each in passes))


def definitions(dtype: str, width: int, chip: int) -> dict[str, str]:
    """Return the macros with which flash.cu is compiled for an element type, a width and a chip."""
    tiles = {
        "FORWARD": long_tile(width, chip)[1:],
        "DECODE": short_tile(width)[1:],
        "BACKWARD": back_tile(width)[3:],
    }
    macros = {name: ",".join(map(str, tile)) for name, tile in tiles.items()}
    return {"MATH": ARITHMETICS[dtype], "WIDTH_OF_ROWS": str(width), **macros}


def block_of(kernel: str, width: int, chip: int) -> Block:
    """Return the block of a kernel and its argument."""
    if kernel not in _FORWARD:
        tile = back_tile(width)
        return Block(32 * tile.warps, tile.shared_bytes(kernel.removeprefix("flash_")), "Call")
    own = long_tile(width, chip) if kernel == "flash_long" else short_tile(width)
    shared = 0 if kernel == "flash_combine" else own.shared_bytes
    return Block(32 * own.warps, shared, "Serving")


def plan(problem: AttentionProblem, multiprocessors: int) -> Plan:
    """Return how a problem's forward is cut for a device with a count of multiprocessors."""
    chip, width = chip_of(problem.capability or (8, 0)), width_of(problem)
    heads = problem.leading_shape[-1]
    groups = {max(heads // max(each.shape[1], 1), 1) for each in (problem.key, problem.value)}
    pack = groups.pop() if len(groups) == 1 else 1
    sequences = problem.sequences if problem.key_lengths else ()
    count = len(sequences) or problem.leading_shape[0]
    rows = max((each for each, _ in sequences), default=0) if sequences else problem.query_length
    kernel, tile = "flash_long", long_tile(width, chip)
    if rows * pack <= short_tile(width).rows:
        kernel, tile = "flash_short", short_tile(width)
    blocks = blocks_of(rows * pack, tile.rows)
    units = blocks * count * heads // pack
    keys = max((each for _, each in sequences), default=0) if sequences else problem.key_length
    left, right = problem.band
    if left >= 0 and right >= 0:
        keys = min(keys, blocks_of(tile.rows, pack) + left + right)
    wanted = _WAVES[kernel] * multiprocessors // max(units, 1)
    parts = max(1, min(wanted, keys // _FEWEST_KEYS, _MOST_PARTS))
    return Plan(kernel, tile, pack, blocks, parts)


def forward(problem: AttentionProblem, tensors: Mapping[str, Tensor], plan: Plan) -> list[Launch]:
    """Return the launches of attention.

    tensors: query, key, value, out, and where there are, logsumexp (B, H, L), sinks (H,) and page_table;
    with several lengths spans (sequences, 4) of int32, which `spans` returns; with several parts partial
    (B H L, parts, width) and logarithms (B H L, parts) of float32.
    """
    named = {name: tensors[name] for name in tensors if name not in _OF_SERVING}
    call = passes.call_of(problem, named)
    call.shift = 0  # each sequence has its own
    serving = Serving(
        call=call,
        blocks=plan.blocks,
        pack=plan.pack,
        parts=plan.parts,
        lower_right=problem.lower_right,
    )
    for name, field in _OF_SERVING.items():
        if name in tensors:
            setattr(serving, field, tensors[name].pointer)
    count = call.batches
    if problem.key_lengths:
        serving.sequences = count = len(problem.key_lengths)
    if problem.page_table is not None:
        serving.page_size = problem.key.shape[2]
        serving.page_step, serving.page_across = problem.page_table.strides
    width, rows = plan.tile.width, call.batches * call.heads * call.rows
    grid = plan.blocks * count * (call.heads // plan.pack) * plan.parts
    found = [Launch(plan.kernel, width, grid, serving)]
    if plan.parts > 1:
        grid = blocks_of(rows, short_tile(width).warps)
        found.append(Launch("flash_combine", width, grid, serving))
    return found


def rooms(problem: AttentionProblem, plan: Plan) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and the element type of what the forward needs beside its results, by name."""
    if plan.parts == 1:
        return {}
    batches, heads = problem.leading_shape
    parts = batches * heads * problem.query_length, plan.parts
    return {"partial": ((*parts, plan.tile.width), "float32"), "logarithms": (parts, "float32")}


def spans(problem: AttentionProblem) -> list[tuple[int, int, int, int]]:
    """Return a row, the rows, a key and the keys of each sequence: where they begin, and how many."""
    found, row, key = [], 0, 0
    for rows, keys in problem.sequences:
        found.append((row, rows, key, keys))
        row += rows if problem.query_lengths else 0
        key += keys if problem.page_table is None else 0
    return found


def backward(problem: AttentionProblem, tensors: Mapping[str, Tensor]) -> list[Launch]:
    """Return the launches of the gradients; tensors: as of `attention_cuda.launches.backward`."""
    width = width_of(problem)
    found = passes.backward(problem, tensors, "", (width, width))
    return [Launch(f"flash_{each.function}", width, each.grid, each.call) for each in found]
