"""The streams on which work is queued, and the order between two streams.

The caller's stream is the one chosen with `on_stream`; otherwise the current stream of the library that
owns the arrays, torch or CuPy; otherwise the legacy default stream. Streams are passed by their handles.
Streams are ordered by events on the device: the host does not wait.
"""

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mlbackends.sdpa.describe import is_torch
from mlbackends_kernels.cuda.devices import driver, our_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The legacy default stream, as CUDA, DLPack and the array interface number it.
LEGACY = 1

_chosen: ContextVar[int | None] = ContextVar("stream", default=None)


@contextmanager
def on_stream(stream: Any) -> "Iterator[None]":
    """Queue the work of this block on a stream, whichever library owns the arrays.

    stream: of cuda.core, torch, CuPy or another library with `__cuda_stream__`; or a handle. It must
    live until its work has ended and the arrays that were made on it are gone.
    """
    handle = stream
    if hasattr(stream, "__cuda_stream__"):
        handle = stream.__cuda_stream__()[1]
    elif not isinstance(stream, int):
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", None))
    if handle is None:
        raise TypeError(f"{type(stream).__name__} is not a stream: it has no __cuda_stream__")
    token = _chosen.set(int(handle) or LEGACY)
    try:
        yield
    finally:
        _chosen.reset(token)


def callers(*things: Any) -> int:
    """Return the caller's stream for work on some arrays."""
    stream = _chosen.get()
    if stream is not None:
        return stream
    for thing in things:
        if is_torch(thing):
            return of_torch(thing)
        if type(thing).__module__.partition(".")[0] == "cupy":
            return int(sys.modules["cupy"].cuda.get_current_stream(int(thing.device.id)).ptr) or LEGACY
    return LEGACY


def of_torch(tensor: Any) -> int:
    """Return torch's current stream on a tensor's device."""
    cuda = sys.modules["torch"].cuda
    return int(cuda.current_stream(tensor.device.index or 0).cuda_stream) or LEGACY


@lru_cache(maxsize=64)
def of_core(handle: int) -> Any:
    """Return cuda.core's stream with a handle."""
    from cuda.core import LEGACY_DEFAULT_STREAM, Stream

    return LEGACY_DEFAULT_STREAM if handle == LEGACY else Stream.from_handle(handle)


def follow(stream: int, other: int) -> None:
    """Make later work on a stream wait, on the device, for the work queued on another stream so far.

    A graph that is being captured cannot be ordered with a stream outside of it: synchronise before the
    capture.
    """
    if stream != other and is_captured(stream) == is_captured(other):
        with our_errors("cuStreamWaitEvent"):
            of_core(stream).wait(of_core(other))


def is_captured(stream: int) -> bool:
    """Return whether work on a stream is being captured into a graph."""
    status, state = driver().cuStreamIsCapturing(stream)
    return not status and bool(state)  # the legacy stream returns an error during a capture
