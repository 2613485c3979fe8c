"""Launches of attention on a device, on the stream of the caller's tensors."""

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from mlbackends.model.errors import MlBackendsError
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.describe import is_torch
from mlbackends.switches import store
from mlbackends_kernels.attention_cuda import launches
from mlbackends_kernels.attention_cuda.compiling import ENTRY, machine_code
from mlbackends_kernels.attention_cuda.launches import Launch, Tile
from mlbackends_kernels.triton.launching import output_like
from mlbackends_kernels.triton.operands import Operand, operand

_LEGACY_STREAM = 1
_USUAL_SHARED_BYTES = 48 << 10
"""More must be allowed for each kernel and device."""


def attend(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, *, logsumexp: bool
) -> tuple[Any, Any]:
    """Return attention, and each row's logarithm if wanted: float32, beside the query."""
    names = ("query", "key", "value", "mask")
    given = zip(names, (query, key, value, mask), strict=True)
    operands = {name: operand(tensor) for name, tensor in given if tensor is not None}
    device = operands["query"].device
    out = output_like(query, problem.output_shape, problem.dtype, device)
    operands["out"] = operand(out)
    logarithms = None
    if logsumexp:
        logarithms = output_like(query, problem.output_shape[:-1], "float32", device)
        operands["logsumexp"] = operand(logarithms)
    run(problem, launches.forward(problem, operands, precision()), operands["query"])
    return out, logarithms


def precision() -> str:
    """Return what `cuda.matmul.fp32_precision` says: "ieee" for products of float32 in full."""
    return str(store.read("cuda.matmul.fp32_precision"))


def run(problem: AttentionProblem, what: Sequence[Launch], first: Operand) -> None:
    """Queue launches on the device of a tensor, one after the other."""
    assert problem.capability is not None
    stream = _LEGACY_STREAM
    if is_torch(first.owner):
        stream = int(sys.modules["torch"].cuda.current_stream(first.device).cuda_stream)
    _driver("cuCtxPushCurrent", _context(first.device))
    try:
        for launch in what:
            if launch.grid:
                _launch(launch, problem.capability, first.device, stream)
    finally:
        _driver("cuCtxPopCurrent")


@cache
def _context(device: int) -> Any:
    """Return the context of a device that CUDA's runtime, and so everybody, uses."""
    _driver("cuInit", 0)
    return _driver("cuDevicePrimaryCtxRetain", device)


def _launch(what: Launch, capability: tuple[int, int], device: int, stream: int) -> None:
    kernel = _kernel(what.function, what.tile, capability, device)
    shared = what.tile.shared_bytes(what.function)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(what.call))
    sizes = (what.grid, 1, 1, 32 * what.tile.warps, 1, 1, shared)
    _driver("cuLaunchKernel", kernel, *sizes, stream, ctypes.addressof(arguments), 0)


@cache
def _kernel(function: str, tile: Tile, capability: tuple[int, int], device: int) -> Any:
    """Return the handle of a kernel that may be launched on a device; it stays loaded."""
    from cuda.bindings import driver  # type: ignore[import-not-found,unused-ignore]

    library = _driver(
        "cuLibraryLoadData", machine_code(function, tile, capability), [], [], 0, [], [], 0
    )
    kernel = _driver("cuLibraryGetKernel", library, ENTRY)
    shared = tile.shared_bytes(function)
    if shared > _USUAL_SHARED_BYTES:
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _driver("cuKernelSetAttribute", limit, shared, kernel, device)
    return driver.CUfunction(int(kernel))


def _driver(function: str, *arguments: Any) -> Any:
    """Call the driver and return what it returns beside its status."""
    from cuda.bindings import driver

    status, *values = getattr(driver, function)(*arguments)
    if int(status):
        raise MlBackendsError(f"{function} returned {int(status)} ({status.name})")
    return values[0] if values else None
