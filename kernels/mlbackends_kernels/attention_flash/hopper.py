"""What is launched of hopper.cu, and for which problems. Nothing here touches a device.

Tensor maps are described here, and encoded by the driver; the tests read the descriptions on the CPU.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mlbackends.model.problem import AttentionProblem
from mlbackends_kernels.attention_cuda.launches import Tensor, blocks_of
from mlbackends_kernels.attention_flash.launches import Block
from mlbackends_kernels.cuda.tensor_maps import Map

#: Of the compiler: what only (9, 0) runs.
TARGET = "sm_90a"
_CAPABILITY = (9, 0)

#: The elements of a row in a slab, whose 128 bytes TMA swizzles; and the rows of a warpgroup.
_SLAB = 64
#: TMA wants addresses and strides to be multiples of so many bytes.
_CHUNK = 16
_MOST_BYTES = 1 << 40
_FEWEST_ROWS = 64
_MOST_ROWS = 1 << 29
_ALL = 1 << 30
_LOG2_E = 1.4426950408889634


class Tile(NamedTuple):
    """The arguments of the template `Tile` of hopper.cu, in its order.

    width: of rows in products. Each of `groups` warpgroups has 64 rows of `lefts` tensors, and takes
    `columns` rows of two others at a time, of which `stages` tiles are in shared memory.
    """

    half: int
    width: int
    columns: int
    groups: int
    stages: int
    lefts: int

    @property
    def rows(self) -> int:
        """The rows of a block."""
        return _SLAB * self.groups

    @property
    def threads(self) -> int:
        """The threads of a block: those of one more warpgroup, which copies."""
        return 128 * (self.groups + 1)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: to align it, the tiles, and two barriers for each."""
        row = blocks_of(self.width, _SLAB) * 2 * _SLAB
        tiles = self.lefts * self.rows + 2 * self.stages * self.columns
        return 1024 + tiles * row + 16 * (1 + 2 * self.stages)


#: columns, groups, stages and lefts by width and kernel: long tiles waste more where keys are hidden.
_SHAPES = {
    64: {
        "hopper_whole": (128, 3, 4, 1),
        "hopper_query": (128, 2, 2, 2),
        "hopper_both": (64, 2, 2, 2),
    },
    96: {"hopper_whole": (176, 2, 2, 1), "hopper_banded": (128, 2, 2, 1)},
    128: {
        "hopper_whole": (176, 2, 2, 1),
        "hopper_banded": (128, 2, 2, 1),
        "hopper_query": (80, 2, 2, 2),
        "hopper_both": (64, 2, 2, 2),
    },
    192: {"hopper_whole": (112, 2, 2, 1)},
    256: {"hopper_whole": (80, 2, 2, 1)},
}
WIDTHS = tuple(_SHAPES)
_WIDTHS_BACK = tuple(width for width, kernels in _SHAPES.items() if "hopper_both" in kernels)


class Source(ctypes.Structure):
    """A tensor that is copied: `Source` of hopper.cu."""

    _fields_ = (
        ("map", ctypes.c_uint64 * 16),
        ("group", ctypes.c_int32),
        ("batches", ctypes.c_int32),
        ("reserved", ctypes.c_int32 * 14),
    )


class Target(ctypes.Structure):
    """A tensor that is written: `Target` of hopper.cu."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "head", "row")),
        ("width", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class Call(ctypes.Structure):
    """The argument of each kernel: `Call` of hopper.cu."""

    _fields_ = (
        ("left", Source * 2),
        ("right", Source * 2),
        ("out", Target * 2),
        *((name, ctypes.c_void_p) for name in ("logsumexp", "summary", "sinks")),
        ("sink_step", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("heads", "shared", "rows", "columns")),
        *((name, ctypes.c_int32) for name in ("lower", "upper", "blocks", "per_unit", "pieces")),
        *((name, ctypes.c_int32) for name in ("wide_sinks", "capped")),
        *((name, ctypes.c_float) for name in ("inner", "factor", "scale")),
        ("reserved", ctypes.c_int32 * 6),
    )


class Launch(NamedTuple):
    """One launch of a kernel of hopper.cu, by its name, for rows of a width.

    The argument gets, by the names of tensors, maps and addresses: at offsets in bytes.
    """

    kernel: str
    width: int
    grid: int
    argument: Call
    maps: dict[str, tuple[int, Map]]
    addresses: dict[str, int]


def serves(problem: AttentionProblem, tensors: Mapping[str, Tensor]) -> bool:
    """Tell whether hopper.cu computes a problem that flash.cu does; its gradients, with a grad_out.

    It takes one length for all, rows enough for a warpgroup, even widths, a scale above 0, and tensors
    that TMA reads: rows without gaps, none twice, addresses and strides of whole 16 bytes. For
    gradients, widths are at most 128, and nothing repeats but heads of key and value together.
    """
    (batches, heads), rows, keys = problem.leading_shape, problem.query_length, problem.key_length
    if problem.capability != _CAPABILITY or problem.key_lengths or problem.page_table is not None:
        return False
    if 0 in (batches, heads, rows, keys) or not problem.head_dim or not problem.value_dim:
        return False
    if not _FEWEST_ROWS <= rows <= _MOST_ROWS or keys > _MOST_ROWS or _scale(problem) <= 0:
        return False
    read = ["query", "key", "value"]
    if "grad_out" in tensors:
        read.append("grad_out")
        query, key, value = (tensors[name].shape[:2] for name in read[:3])
        if query != (batches, heads) or key != value or key[0] != batches:
            return False
        if problem.head_dim % 2 or _widest(problem) > _WIDTHS_BACK[-1]:
            return False
    return not problem.value_dim % 2 and all(_is_readable(tensors[name]) for name in read)


def _is_readable(tensor: Tensor) -> bool:
    if tensor.pointer % _CHUNK or (tensor.strides[-1] != 1 and tensor.shape[-1] > 1):
        return False
    if tensor.shape[-2] > 1 and tensor.strides[-2] < tensor.shape[-1]:  # rows repeat or overlap
        return False
    return all(0 <= each < _MOST_BYTES and not each % _CHUNK for each in _layout(tensor)[1])


def _layout(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of a tensor, the width first, and the strides of the rest: of what repeats, once."""
    sizes, strides = [tensor.shape[-1]], []
    row = _CHUNK * blocks_of(2 * tensor.shape[-1], _CHUNK)  # no stride is less than a row
    for size, step in reversed(tuple(zip(tensor.shape[:-1], tensor.strides[:-1], strict=True))):
        repeats = size == 1 or step == 0
        sizes.append(1 if repeats else size)
        strides.append(row if repeats else 2 * step)
    return tuple(sizes), tuple(strides)


def _scale(problem: AttentionProblem) -> float:
    return problem.head_dim**-0.5 if problem.scale is None else problem.scale


def _widest(problem: AttentionProblem) -> int:
    return max(problem.head_dim, problem.value_dim)


def tiles(dtype: str, width: int) -> dict[str, Tile]:
    """Return the tile of each kernel for rows of a width."""
    half = int(dtype == "float16")
    return {name: Tile(half, width, *shape) for name, shape in _SHAPES[width].items()}


def block_of(tile: Tile) -> Block:
    """Return the block of a kernel and its argument."""
    return Block(tile.threads, tile.shared_bytes, "Call")


def definitions(dtype: str, width: int) -> dict[str, str]:
    """Return what the kernels for rows of a width are compiled with: the arguments of their tiles."""
    each = tiles(dtype, width).items()
    return {name.upper(): ",".join(map(str, tile)) for name, tile in each}


def forward(
    problem: AttentionProblem, tensors: Mapping[str, Tensor], multiprocessors: int
) -> Launch:
    """Return the launch of attention.

    tensors: query, key, value, out, and where there are, sinks (H,) and logsumexp (B, H, L), packed.
    """
    launch = _Launches(problem, tensors, multiprocessors, WIDTHS)
    is_whole = problem.band == (-1, -1) or "hopper_banded" not in launch.tiles
    kernel = "hopper_whole" if is_whole else "hopper_banded"
    heads = problem.leading_shape[1]
    return launch(kernel, ["query"], ["key", "value"], ["out"], heads)


def backward(
    problem: AttentionProblem, tensors: Mapping[str, Tensor], multiprocessors: int
) -> list[Launch]:
    """Return the launches of the gradients of query, key and value, which follow that of `summarize`.

    tensors: query, key, value, grad_out, summary, grad_query, grad_key and grad_value.
    """
    launch = _Launches(problem, tensors, multiprocessors, _WIDTHS_BACK)
    queries, keys, gradients = ["query", "grad_out"], ["key", "value"], ["grad_key", "grad_value"]
    heads = problem.leading_shape[1]
    return [
        launch("hopper_query", queries, keys, ["grad_query"], heads),
        launch("hopper_both", keys, queries, gradients, tensors["key"].shape[1]),
    ]


class _Launches:
    """Makes the launches of a problem."""

    def __init__(
        self,
        problem: AttentionProblem,
        tensors: Mapping[str, Tensor],
        multiprocessors: int,
        widths: tuple[int, ...],
    ) -> None:
        self._problem, self._tensors, self._most = problem, tensors, multiprocessors
        self._width = next(each for each in widths if each >= _widest(problem))
        self.tiles = tiles(problem.dtype, self._width)

    def __call__(
        self, kernel: str, left: Sequence[str], right: Sequence[str], out: Sequence[str], heads: int
    ) -> Launch:
        """Return the launch of a kernel; see `Call` of hopper.cu. heads: of what is written."""
        problem, tensors, tile = self._problem, self._tensors, self.tiles[kernel]
        rows, columns = (tensors[names[0]].shape[2] for names in (left, right))
        before, after = problem.band
        shift = problem.key_length - problem.query_length if problem.lower_right else 0
        lower = -_ALL if before < 0 else max(shift - before, -_ALL)
        upper = _ALL if after < 0 else min(shift + after, _ALL)
        batches, all_heads = problem.leading_shape
        blocks = blocks_of(rows, tile.rows)
        per_unit = blocks if (before < 0) == (after < 0) else blocks_of(blocks, 2)
        cap, scale = problem.softcap, _scale(problem)
        call = Call(
            heads=heads,
            shared=all_heads // heads,
            rows=rows,
            columns=columns,
            lower=lower if left[0] == "query" else -upper,
            upper=upper if left[0] == "query" else -lower,
            blocks=blocks,
            per_unit=per_unit,
            pieces=per_unit * batches * heads,
            capped=cap > 0,
            inner=scale / cap if cap else 0,
            factor=(cap or scale) * _LOG2_E,
            scale=scale,
        )
        maps, addresses = {}, {}
        for side, names, box in (("left", left, tile.rows), ("right", right, tile.columns)):
            start, sources = getattr(Call, side).offset, getattr(call, side)
            for i, name in enumerate(names):
                sizes, strides = _layout(tensors[name])
                whole = Map(
                    tensors[name].pointer, problem.dtype, sizes, strides, (_SLAB, box, 1, 1)
                )
                maps[name] = start + i * ctypes.sizeof(Source), whole
                sources[i].group = max((heads if side == "left" else all_heads) // sizes[2], 1)
                sources[i].batches = sizes[3]
        for i, name in enumerate(out):
            to = tensors[name]
            call.out[i] = Target(to.pointer, *to.strides[:3], to.shape[3])
            addresses[name] = Call.out.offset + i * ctypes.sizeof(Target)
        for name in ("logsumexp", "summary", "sinks"):
            if name in tensors:
                addresses[name] = getattr(Call, name).offset
                setattr(call, name, tensors[name].pointer)
        if "sinks" in tensors:
            call.sink_step = tensors["sinks"].strides[0]
            call.wide_sinks = tensors["sinks"].dtype == "float32"
        grid = min(self._most, call.pieces)
        return Launch(kernel, self._width, grid, call, maps, addresses)
