"""What a kernel is launched with: its grid, its arguments and how it is compiled. No Triton in here.

`launch` hands it to Triton's own launcher, on the stream of the operands.
"""

import sys
from contextlib import ExitStack
from typing import Any, NamedTuple

from mlbackends.sdpa.describe import is_torch
from mlbackends.switches import store
from mlbackends_kernels.cuda import devices, streams
from mlbackends_kernels.cuda.device_array import DeviceArray, on_torchs_stream
from mlbackends_kernels.triton import tiles
from mlbackends_kernels.triton.tiles import Tile, block_of

_GROUP = 8  # blocks of rows that share columns in the cache


class Launch(NamedTuple):
    """arguments: by the kernel's names. constants: those of them that it is compiled for."""

    grid: tuple[int]
    arguments: dict[str, Any]
    constants: dict[str, Any]
    tile: Tile

    @property
    def options(self) -> dict[str, int | bool]:
        """Further options of the compiler. Triton 3.9 warns where nothing says whether it may fuse."""
        tile = self.tile
        return {"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": True}


def attention(
    query: DeviceArray,
    key: DeviceArray,
    value: DeviceArray,
    mask: DeviceArray | None,
    output: DeviceArray,
    logsumexp: DeviceArray | None,
    *,
    scale: float,
    causal: bool,
    lower_right: bool,
    precision: str,
    capability: tuple[int, int],
) -> Launch:
    """Return the launch of flash_forward.

    Shapes: query (B, H, L, E), key (B, H, S, E), value (B, H, S, Ev), mask broadcastable to
    (B, H, L, S), output (B, H, L, Ev), logsumexp (B, H, L) contiguous float32. B and H are the
    output's; another may have 1, or a divisor of H. precision: "ieee" or "tf32", for float32.
    """
    heads, rows, keys = output.shape[1], output.shape[2], key.shape[2]
    head_dim, value_dim = query.shape[3], value.shape[3]
    tile = tiles.attention_tile(
        capability,
        query.dtype,
        max(head_dim, value_dim),
        query_length=rows,
        masked=mask is not None,
        precision=precision,
    )
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        "mask": query if mask is None else mask,
        "output": output,
        "logsumexp": query if logsumexp is None else logsumexp,
        "scale": float(scale),
        "heads": heads,
        "query_group": heads // query.shape[1],
        "key_group": heads // key.shape[1],
        "value_group": heads // value.shape[1],
        "query_length": rows,
        "key_length": keys,
        "shift": keys - rows if lower_right else 0,
    }
    named = {"query": query, "key": key, "value": value, "output": output}
    for name, operand in named.items():
        batch, head, row, _ = operand.steps(output.shape)
        arguments |= {f"{name}_batch": batch, f"{name}_head": head, f"{name}_row": row}
    steps = mask.steps((*output.shape[:3], keys)) if mask else (0, 0, 0, 0)
    names = ("mask_batch", "mask_head", "mask_row", "mask_column")
    arguments |= zip(names, steps, strict=True)
    constants = {
        "head_dim": head_dim,
        "value_dim": value_dim,
        "head_block": block_of(head_dim),
        "value_block": block_of(value_dim),
        "row_block": tile.rows,
        "key_block": tile.columns,
        "causal": causal,
        "mask_kind": 0 if mask is None else 1 if mask.dtype == "bool" else 2,
        "with_logsumexp": logsumexp is not None,
        "precision": precision,
    }
    return Launch((_blocks(rows, tile.rows) * heads * output.shape[0],), arguments, constants, tile)


def product(
    left: DeviceArray,
    right: DeviceArray,
    result: DeviceArray,
    *,
    precision: str,
    capability: tuple[int, int],
) -> Launch:
    """Return the launch of batched_matmul.

    Shapes: left (B, m, k), right (B, k, n), result (B, m, n) contiguous. precision: "ieee" or "tf32".
    """
    batch, rows, columns = result.shape
    tile = tiles.product_tile(capability, left.dtype, rows, columns)
    arguments = {
        "left": left,
        "right": right,
        "product": result,
        "rows": rows,
        "columns": columns,
        "depth": left.shape[2],
    }
    for name, operand in (("left", left), ("right", right)):
        names = (f"{name}_batch", f"{name}_row", f"{name}_column")
        arguments |= zip(names, operand.strides, strict=True)
    constants = {
        "row_block": tile.rows,
        "column_block": tile.columns,
        "depth_block": tiles.product_depth(left.dtype),
        "group": _GROUP,
        "precision": precision,
    }
    each = _blocks(rows, tile.rows) * _blocks(columns, tile.columns)
    return Launch((each * batch,), arguments, constants, tile)


def launch(kernel: Any, what: Launch) -> None:
    """Run a kernel on the device and stream of its first operand. Returns before it is done.

    Triton's launcher asks the torch in this process for device and stream; without one it takes the
    legacy default stream, with which the operand's is put in order.
    """
    first = next(each for each in what.arguments.values() if isinstance(each, DeviceArray))
    with ExitStack() as scopes:
        if "torch" in sys.modules:
            scopes.enter_context(on_torchs_stream(first))
        else:
            from triton.runtime import driver  # type: ignore[import-not-found,unused-ignore]

            scopes.enter_context(devices.on_device(first.device))
            driver.active.set_current_device(first.device)
            streams.follow(streams.LEGACY, first.stream)
            scopes.callback(streams.follow, first.stream, streams.LEGACY)
        kernel[what.grid](**what.arguments, **what.constants, **what.options)


def capability_of(operand: DeviceArray) -> tuple[int, int]:
    """Return the compute capability of the device that holds a tensor."""
    if is_torch(operand.owner):
        major, minor = sys.modules["torch"].cuda.get_device_capability(operand.device)
        return int(major), int(minor)
    return devices.capability(operand.device)


def fp32_precision() -> str:
    """Return what float32 is multiplied in: "tf32" where `cuda.matmul.fp32_precision` says so."""
    return "tf32" if store.read("cuda.matmul.fp32_precision") == "tf32" else "ieee"


def _blocks(size: int, block: int) -> int:
    return -(-size // block)
