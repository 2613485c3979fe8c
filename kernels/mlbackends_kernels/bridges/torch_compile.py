"""torch.compile(model, backend="mlbackends"): attention by our dispatcher, everything else by torch.

The graph runs as torch's own "eager" backend would run it, with each scaled_dot_product_attention in it
(also inside nn.MultiheadAttention, activation checkpoints and branches) replaced by `attention`.
Written for and tested with torch 2.13.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from mlbackends_kernels.bridges.torch_attention import attention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NAME = "scaled_dot_product_attention"


def compile_graph(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return what runs a captured graph; the entry point of torch's `torch_dynamo_backends`.

    The inputs are not looked at: nothing here depends on shapes, so dynamic ones are served alike.
    mode, options: as torch.compile hands them on. Raises ValueError for a mode other than "default"
    and for any option: there are none.
    """
    del example_inputs
    if mode not in (None, "default"):
        raise ValueError(f"the backend 'mlbackends' has no modes; mode={mode!r} is for 'inductor'")
    if options:
        named = ", ".join(map(repr, options))
        raise ValueError(f"the backend 'mlbackends' takes no options; it was given {named}")
    replacements = _replacements()
    for module in graph.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        found = [
            node
            for node in module.graph.nodes
            if node.op == "call_function" and node.target in replacements
        ]
        for node in found:
            node.target = replacements[node.target]
        if found:
            module.recompile()
    return graph.forward  # type: ignore[no-any-return,unused-ignore]


def multi_head_attention_forward(*args: Any, **kwargs: Any) -> Any:
    """Run torch.nn.functional.multi_head_attention_forward with our attention inside."""
    return _with_our_attention(functional.multi_head_attention_forward)(*args, **kwargs)


@functools.cache
def _replacements() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten.scaled_dot_product_attention
    return {
        functional.scaled_dot_product_attention: attention,
        torch._C._nn.scaled_dot_product_attention: attention,  # noqa: SLF001  the same, by its other name
        aten: attention,
        aten.default: attention,
        functional.multi_head_attention_forward: multi_head_attention_forward,
    }


@functools.cache
def _with_our_attention(function: types.FunctionType) -> Callable[..., Any]:
    """Return a function of torch.nn.functional whose calls of attention come to us.

    torch.compile keeps such a function whole in its graph. The same code with one global name of its
    own is safe in any thread, where a changed torch.nn.functional would not be.
    """
    if _NAME not in function.__code__.co_names:
        return function
    names = {**function.__globals__, _NAME: attention}
    ours = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    ours.__kwdefaults__ = function.__kwdefaults__
    return ours
