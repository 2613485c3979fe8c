"""The streams on which work is queued: the caller's, and the order between two of them.

The caller's stream is the one that he chose with `on_stream`; else that on which the library that holds
the arrays works: torch's or CuPy's current one; else the legacy default stream. Streams are passed by
their handles. An order between two is an event on the device: nothing here waits on the host.
"""

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlbackends.sdpa.describe import is_torch
from mlbackends_kernels.cuda.devices import driver
from mlbackends_kernels.cuda.errors import our_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The legacy default stream, as CUDA, DLPack and the array interface number it.
LEGACY = 1

_chosen: ContextVar[int | None] = ContextVar("stream", default=None)


@contextmanager
def on_stream(stream: Any) -> "Iterator[None]":
    """Queue what is computed in this block on a stream, whichever library holds the arrays.

    stream: cuda.core's, torch's, CuPy's or any other that has `__cuda_stream__`; or a handle. It must
    live until its work is done and the arrays that were made on it are gone.
    """
    handle = stream
    if hasattr(stream, "__cuda_stream__"):
        handle = stream.__cuda_stream__()[1]
    elif not isinstance(stream, int):
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", None))
    if handle is None:
        raise TypeError(f"{type(stream).__name__} is no stream: it has no __cuda_stream__")
    token = _chosen.set(int(handle) or LEGACY)
    try:
        yield
    finally:
        _chosen.reset(token)


#: Return the stream of the innermost `on_stream`, None outside of any.
chosen = _chosen.get


def callers(*things: Any) -> int:
    """Return the stream on which the caller wants the work on some arrays, of any library, done."""
    stream = _chosen.get()
    if stream is not None:
        return stream
    for thing in things:
        if is_torch(thing):
            return of_torch(thing)
        if is_cupy(thing):
            return of_cupy(thing)
    return LEGACY


def is_cupy(thing: object) -> bool:
    """Tell whether something is an array of CuPy."""
    return type(thing).__module__.partition(".")[0] == "cupy"


def of_cupy(array: Any) -> int:
    """Return the stream on which CuPy works on an array's device."""
    return int(sys.modules["cupy"].cuda.get_current_stream(int(array.device.id)).ptr) or LEGACY


def of_torch(tensor: Any) -> int:
    """Return the stream on which torch works with a tensor."""
    return int(torchs_current()(tensor.device.index or 0)) or LEGACY


def torchs_current() -> "Callable[[int], Any]":
    """Return a function that returns torch's current stream on a device, 0 for the default one."""
    torch = sys.modules["torch"]
    # What a stream's object is made of; a torch without CUDA has none.
    handle = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return handle or (lambda index: torch.cuda.current_stream(index).cuda_stream)


@lru_cache(maxsize=64)
def of_core(handle: int) -> Any:
    """Return cuda.core's stream with a handle."""
    from cuda.core import LEGACY_DEFAULT_STREAM, Stream

    return LEGACY_DEFAULT_STREAM if handle == LEGACY else Stream.from_handle(handle)


def follow(stream: int, other: int) -> None:
    """Let what comes on a stream wait, on the device, for what was queued on another so far.

    Between a graph that is being captured and a stream outside of it there is no order: who captures
    waits before.
    """
    if stream != other and is_captured(stream) == is_captured(other):
        with our_errors("cuStreamWaitEvent"):
            of_core(stream).wait(of_core(other))


def is_captured(stream: int) -> bool:
    """Tell whether what is queued on a stream becomes part of a graph."""
    status, state = driver().cuStreamIsCapturing(stream)
    return not status and bool(state)  # the legacy stream refuses to answer during a capture
