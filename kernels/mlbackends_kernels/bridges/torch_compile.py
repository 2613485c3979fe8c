"""torch.compile(model, backend="mlbackends"): attention by our dispatcher, everything else by torch.

The graph runs as with torch's "eager" backend, but with each scaled_dot_product_attention (also inside
nn.MultiheadAttention, activation checkpoints and branches) replaced by `attention`. Written for torch 2.13 to
2.15. The scopes of both sdpa_kernel functions, torch's and ours, in or around the compiled code restrict the
kinds of backends, ours and torch's. A function whose graph breaks within a scope is not compiled, and its
attention is torch's.

What computes each call is decided when it runs, by `torch_function.attention`.
"""

import functools
import inspect
import threading
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from mlbackends.sdpa import calls, switches
from mlbackends.sdpa.switches import SDPBackend
from mlbackends_kernels.bridges.torch_function import TORCHS, attention

if TYPE_CHECKING:
    import contextlib

_NAME = "scaled_dot_product_attention"
#: The most nodes between a softmax and its products.
_FARTHEST = 50
_NEED_WEIGHTS = [*inspect.signature(functional.multi_head_attention_forward).parameters].index("need_weights")


def compile_graph(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return what runs a captured graph; the entry point of torch's `torch_dynamo_backends`.

    The inputs are not used, so dynamic shapes work too. mode, options: as torch.compile passes them. Raises
    ValueError for a mode other than "default" and for any option.
    """
    del example_inputs
    if mode not in (None, "default"):
        raise ValueError(f"the backend 'mlbackends' has no modes; mode={mode!r} is for 'inductor'")
    if options:
        named = ", ".join(map(repr, options))
        raise ValueError(f"the backend 'mlbackends' takes no options; it was given {named}")
    aten = torch.ops.aten.scaled_dot_product_attention
    replacements: dict[Any, Callable[..., Any]] = {
        TORCHS: attention,
        aten: attention,
        aten.default: attention,
        functional.multi_head_attention_forward: multi_head_attention_forward,
        switches.begin_in_graph: _begin,
        switches.end_in_graph: _end,
    }
    has_scopes = False
    for module in graph.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        functions = [node for node in module.graph.nodes if node.op == "call_function"]
        replaced = [node for node in functions if node.target in replacements]
        for node in replaced:
            has_scopes |= node.target is switches.begin_in_graph
            node.target = replacements[node.target]
        unknown = [(node, *kept) for node in module.graph.nodes if (kept := _unreplaced(node))]
        for node, query, why in unknown:
            with module.graph.inserting_before(node):
                module.graph.call_function(calls.note, ("torch", query, why))
            warnings.warn(f"torch computes this attention: {why}", UserWarning, stacklevel=2)
        if replaced or unknown:
            module.recompile()
    forward: Callable[..., Any] = graph.forward
    if not has_scopes:
        return forward

    def run(*args: Any) -> Any:
        depth = len(_SCOPES.entered)
        try:
            return forward(*args)
        finally:  # if it raises, the scopes that it entered are left
            while len(_SCOPES.entered) > depth:
                _end()

    return run


_WRITTEN = "softmax(query @ key) @ value is written out; call scaled_dot_product_attention instead"
_FAST_PATH = "the fast path of torch.nn, which has no replacement here"
_UNREPLACED = {
    "flex_attention": "flex_attention, which has no replacement here",
    "_native_multi_head_attention": _FAST_PATH,
    "_transformer_encoder_layer_fwd": _FAST_PATH,
}
_PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum", "__matmul__"})
#: What may stand between the products and the softmax: scales, masks, casts and dropout.
_BETWEEN = frozenset(
    {
        "add", "__add__", "iadd", "sub", "mul", "__mul__", "imul", "truediv", "div", "masked_fill",
        "masked_fill_", "where", "to", "float", "type_as", "type", "half", "bfloat16", "dropout",
        "contiguous", "view", "reshape", "clamp", "tanh", "max",
    }
)  # fmt: skip


def _unreplaced(node: torch.fx.Node) -> tuple[torch.fx.Node, str] | None:
    """Return the query of attention that a node computes and torch keeps, and why; None for anything else."""
    name = _name(node)
    if why := _UNREPLACED.get(name):
        return node.all_input_nodes[0], why
    if name != "softmax":
        return None
    scores, result = _product(node, "all_input_nodes"), _product(node, "users")
    if not scores or not result:
        return None
    # The query is the last but one: baddbmm adds its first tensor to the product.
    query, key = scores.all_input_nodes[-2:][0], scores.all_input_nodes[-1]
    while key.op in ("call_function", "call_method") and len(key.all_input_nodes) == 1:
        key = key.all_input_nodes[0]
    # Products with a parameter are a linear layer: the softmax weighs choices, such as experts.
    is_layer = isinstance(key.meta.get("example_value"), torch.nn.Parameter)
    return None if is_layer else (query, _WRITTEN)


def _product(node: torch.fx.Node, side: str) -> torch.fx.Node | None:
    """Return the product of matrices on a side of a node, apart from what may be between them."""
    near = [node]
    for step in near:  # which grows
        for other in getattr(step, side) if len(near) < _FARTHEST else ():
            if _name(other) in _PRODUCTS:
                return other
            near += [other] if _name(other) in _BETWEEN and other not in near else []
    return None


def _name(node: torch.fx.Node) -> str:
    """Return the name of what a node calls, such as softmax; "" if it calls a module or nothing."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    return str(getattr(node.target, "__name__", node.target)).partition(".")[0]


def multi_head_attention_forward(query: Any, *args: Any, **kwargs: Any) -> Any:
    """Run torch.nn.functional.multi_head_attention_forward with our attention inside."""
    if args[_NEED_WEIGHTS - 1] if len(args) >= _NEED_WEIGHTS else kwargs.get("need_weights", True):
        calls.note("torch", query, "need_weights=True returns weights, which ours does not store")
    return _with_our_attention(functional.multi_head_attention_forward)(query, *args, **kwargs)


# ---- scopes -----------------------------------------------------------------


class _Scopes(threading.local):
    """The scopes that the graphs of a thread have entered."""

    def __init__(self) -> None:
        self.entered: list[contextlib.AbstractContextManager[Any]] = []


_SCOPES = _Scopes()
for _marker in (switches.begin_in_graph, switches.end_in_graph):
    torch.compiler.allow_in_graph(_marker)


def _begin(names: tuple[str, ...], set_priority: bool) -> None:
    scope = switches.sdpa_kernel([SDPBackend[name] for name in names], set_priority)
    scope.__enter__()
    _SCOPES.entered.append(scope)


def _end() -> None:
    _SCOPES.entered.pop().__exit__(None, None, None)


@functools.cache
def _with_our_attention(function: types.FunctionType) -> Callable[..., Any]:
    """Return a function of torch.nn.functional that calls our attention.

    torch.compile keeps such a function as one node of its graph. A copy of its code with one different global
    is thread-safe, which a change of torch.nn.functional would not be.
    """
    if _NAME not in function.__code__.co_names:
        return function
    names = {**function.__globals__, _NAME: attention}
    ours = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    ours.__kwdefaults__ = function.__kwdefaults__
    return ours
