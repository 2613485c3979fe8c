"""Whether tensors carry more than numbers, which a call that is prepared does not look at."""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from mlbackends_kernels.tensors.arithmetic import numpy


@cache
def watches(kind: type) -> Callable[..., bool] | None:
    """Return a function that tells whether tensors of a kind, or None, carry more than numbers.

    That is: a tangent, a sign that is not applied yet, storage that was freed below a tensor with an
    offset (without one, the address is null), or a mode or trace that records calls; gradients are another
    matter. None for NumPy's arrays, which have nothing of the kind. Raises AttributeError for a torch that
    cannot tell.
    """
    if kind is numpy().ndarray:
        return None
    torch: Any = sys.modules["torch"]
    core = torch._C  # noqa: SLF001  nowhere else
    if hasattr(torch.Tensor, "has_names"):
        raise AttributeError("in an older torch tensors may have names")
    dispatch_modes, function_modes = core._len_torch_dispatch_stack, core._len_torch_function_stack  # noqa: SLF001
    included, before_autograd = (
        core._dispatch_tls_is_dispatch_key_included,  # noqa: SLF001
        core.DispatchKey.PreDispatch,
    )
    transform, trace = core._functorch.peek_interpreter_stack, core._get_tracing_state  # noqa: SLF001
    forward = torch.autograd.forward_ad
    forward._current_level  # noqa: B018, SLF001  -1 outside of forward-mode differentiation

    def is_watched(*tensors: Any) -> bool:
        for each in tensors:
            if each is not None and (
                each.is_neg() or (each.storage_offset() and not each.untyped_storage().nbytes())
            ):
                return True
        return (
            dispatch_modes()
            or function_modes()
            or transform() is not None
            or trace() is not None
            or forward._current_level >= 0  # noqa: SLF001
            or included(before_autograd)
        )

    return is_watched
