"""Backends of your own: lower a module's methods to code that you compile and execute.

    class OurChip(BackendInterface): ...          # is_available, compile, execute
    register_backend("our_chip", OurChip)
    register_preprocess("our_chip", preprocess)   # runs ahead of time, on a clone of the module
    lowered = to_backend("our_chip", module, {"forward": {"precision": "low"}})
    lowered(x)
    lowered.save("model.lowered")                 # load() compiles anew; it unpickles: trust the file

The life cycle is that of torch's JIT backends, without TorchScript: what corresponds to a scripted module
is any Python object with methods, see `mlbackends.jit.modules`.
"""

from mlbackends.jit.backend import (
    BackendInterface,
    BackendNotAvailable,
    BadOutput,
    CallMismatch,
    DebugHandles,
    JitError,
    NotAModule,
    NotLoadable,
    register_backend,
    register_preprocess,
)
from mlbackends.jit.lowered import LoweredModule, LoweredWrapper, load, save
from mlbackends.jit.lowering import to_backend, to_backend_selective

__all__ = [
    "BackendInterface", "BackendNotAvailable", "BadOutput", "CallMismatch", "DebugHandles", "JitError",
    "LoweredModule", "LoweredWrapper", "NotAModule", "NotLoadable", "load", "register_backend",
    "register_preprocess", "save", "to_backend", "to_backend_selective",
]  # fmt: skip
