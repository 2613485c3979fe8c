"""Whether the numbers of a torch tensor can be read: some have none, or are traced.

torch is never imported here: where a caller has a tensor of it, it is in the process.
"""

import contextlib
import sys
from typing import Any

from mlbackends.sdpa.describe import is_torch

_INSIDE = "call it outside of what is traced (torch.compile leaves it out of its graph by itself)"
#: torch's modes in which a result would become a constant of the graph that is written.
_TRACERS = ("FAKE", "FUNCTIONAL", "PROXY")


def refuse_unreadable(named: dict[str, Any], operation: str, *, meta: bool = False) -> None:
    """Raise RuntimeError for the first tensor whose numbers cannot be read, or whose use is traced.

    named: by what the message calls it. operation: what stands before that, such as "matmul(): ".
    meta: accept tensors on torch's meta device, where shapes are enough.
    """
    for name, tensor in named.items():
        refuse_unreadable_one(f"{operation}{name}", tensor, meta=meta)


def refuse_unreadable_one(name: str, tensor: Any, *, meta: bool = False) -> None:
    """Raise RuntimeError for one tensor; see `refuse_unreadable`."""
    fx: Any = sys.modules.get("torch.fx")
    if fx is not None and isinstance(tensor, getattr(fx, "Proxy", ())):
        raise RuntimeError(f"{name} is being traced by torch.fx and has no values: {_INSIDE}")
    if not is_torch(tensor):
        return
    if reason := _why_unreadable(tensor):
        raise RuntimeError(f"{name} {reason}")
    if tensor.device.type == "meta" and not meta:
        raise RuntimeError(f"{name} lies on torch's meta device: it has a shape and no values")


def _why_unreadable(tensor: Any) -> str:
    torch: Any = sys.modules["torch"]
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not tensor.is_nested:
        return (
            f"is a {kind.__module__}.{kind.__qualname__}: it has no storage of its own to read;"
            f" give plain tensors, or {_INSIDE}"
        )
    core: Any = getattr(torch, "_C", None)
    functorch: Any = getattr(core, "_functorch", None)
    if getattr(functorch, "is_functorch_wrapped_tensor", lambda _: False)(tensor):
        if functorch.is_batchedtensor(tensor):
            return (
                "is batched by vmap, which cannot look into this: give the whole batch, whose dimension"
                " stands in front, without vmap"
            )
        if functorch.is_gradtrackingtensor(tensor):
            return (
                "carries a gradient or a tangent of torch.func, which cannot look into this:"
                " call it outside of torch.func.grad, jvp, vjp and linearize"
            )
        return f"is being traced by torch.func, and has no storage of its own to read: {_INSIDE}"
    if getattr(torch, "_is_functional_tensor", lambda _: False)(tensor):
        return f"is being traced by functionalization, and has no storage to read: {_INSIDE}"
    mode = getattr(core, "_get_dispatch_mode", lambda _: None)
    operators: Any = sys.modules.get("torch._ops")
    mode_before_autograd = getattr(operators, "_get_dispatch_mode_pre_dispatch", lambda _: None)
    for name in _TRACERS:
        key = getattr(getattr(core, "_TorchDispatchModeKey", None), name, None)
        active = None if key is None else mode(key)
        if key is not None and active is None:
            with contextlib.suppress(AssertionError):  # a kind that is never active there
                active = mode_before_autograd(key)
        if active is not None:
            return f"is being traced: the result would be a constant of the graph; {_INSIDE}"
    if getattr(core, "_get_tracing_state", lambda: None)() is not None:
        return "is being traced by torch.jit.trace: the result would be a constant of the graph"
    unpack = getattr(getattr(torch.autograd, "forward_ad", None), "unpack_dual", None)
    if unpack is not None and unpack(tensor).tangent is not None:
        return (
            "carries a tangent of forward-mode differentiation, which would be lost; give the primal,"
            " torch.autograd.forward_ad.unpack_dual(tensor).primal"
        )
    return ""
