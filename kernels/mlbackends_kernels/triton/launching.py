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
from mlbackends_kernels.triton.tiles import Tile

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


def launch(kernel: Any, planned: Launch) -> None:
    """Run a kernel on the device and stream of its first operand. Returns before it is done.

    Triton's launcher asks the torch in this process for device and stream; without one it takes the
    legacy default stream, with which the operand's is put in order.
    """
    first = next(each for each in planned.arguments.values() if isinstance(each, DeviceArray))
    with ExitStack() as scopes:
        if "torch" in sys.modules:
            scopes.enter_context(on_torchs_stream(first))
        else:
            from triton.runtime import driver  # type: ignore[import-not-found,unused-ignore]

            scopes.enter_context(devices.on_device(first.device))
            driver.active.set_current_device(first.device)
            streams.follow(streams.LEGACY, first.stream)
            scopes.callback(streams.follow, first.stream, streams.LEGACY)
        kernel[planned.grid](**planned.arguments, **planned.constants, **planned.options)


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
