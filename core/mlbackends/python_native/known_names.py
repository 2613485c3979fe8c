"""The names that can be switched on and off, and their check.

torch takes any name, and a typo then switches nothing off. Here a name is known if somebody
registered or declared it, or if torch itself overrides an operation of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.python_native import dsl_registry, filters, override_graph, own_kernels
from mlbackends.python_native.dispatch_keys import DISPATCH_KEYS
from mlbackends.python_native.dsls import NATIVE
from mlbackends.python_native.wrong_names import unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OPERATIONS_OF_TORCH = (
    "_foreach_mm",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "bmm",
    "scatter_add",
    "scatter_add.out",
    "scatter_add_",
    "topk",
    "topk.values",
    # These two are the examples in the documentation of torch.backends.python_native.
    "flash_attention",
    "scaled_mm",
)
"""What a program written for torch may name, whether or not there is a kernel of ours.

Source: torch 2.13, torch/_native/ops and the documentation of torch.backends.python_native.
"""


def _dsls_at_hand() -> tuple[str, ...]:
    return (*dsl_registry.list_all_dsls(), NATIVE)


def _operations_at_hand() -> tuple[str, ...]:
    return (*_OPERATIONS_OF_TORCH, own_kernels.ATTENTION)


def dsls() -> tuple[str, ...]:
    """Return every DSL that is registered or that a kernel is written in, and "native"."""
    own_kernels.register()
    found = set(_dsls_at_hand())
    found |= {node.dsl_name for node in override_graph.every_node()}
    return tuple(sorted(found | own_kernels.attention_dsls()))


def operations() -> tuple[str, ...]:
    """Return every operation that is overridden here, on some machine or in torch."""
    own_kernels.register()
    found = set(_operations_at_hand())
    found |= {node.op_symbol for node in override_graph.every_node()}
    found |= {override.op_symbol for _, override in own_kernels.declared_overrides()}
    return tuple(sorted(found))


def dispatch_keys() -> tuple[str, ...]:
    """Return every dispatch key."""
    return DISPATCH_KEYS


#: What is known without a look at kernels/, and everything.
_KNOWN: dict[str, tuple[Callable[[], tuple[str, ...]], Callable[[], tuple[str, ...]]]] = {
    filters.DSL: (_dsls_at_hand, dsls),
    filters.OPERATION: (_operations_at_hand, operations),
    filters.DISPATCH_KEY: (dispatch_keys, dispatch_keys),
}


def checked(kind: str, names: Sequence[object]) -> tuple[str, ...]:
    """Return names of one kind as they are.

    Raises TypeError for what is no str, and UnknownName, a LookupError with the nearest name as its
    hint, for a name that nobody knows.
    """
    at_hand, everything = _KNOWN[kind]
    known = at_hand()
    if any(isinstance(name, str) and name not in known for name in names):
        known = everything()
    found = []
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise unknown(kind, name, known)
        found.append(name)
    return tuple(found)
