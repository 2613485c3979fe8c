"""A call to an operation that may be overridden, and what a DSL overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbackends.python_native import dsl_registry, override_graph, own_kernels

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def call(
    op_symbol: str,
    dispatch_key: str,
    native_kernel: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Run the first override that is switched on and whose condition holds, else the native kernel.

    What a condition or a kernel raises, the caller gets: it is no reason to try the next.
    """
    own_kernels.register()
    for node in override_graph.nodes(op_symbol, dispatch_key):
        if node.active and node.cond_fn(*args, **kwargs):
            return node.impl_fn(*args, **kwargs)
    return native_kernel(*args, **kwargs)


def get_dsl_operations(dsl_name: str) -> list[str]:
    """Return the operations that a DSL overrides on this machine, sorted; what is off counts too."""
    own_kernels.register()
    found = {node.op_symbol for node in override_graph.every_node() if node.dsl_name == dsl_name}
    if dsl_name in own_kernels.attention_dsls() and dsl_registry.is_dsl_available(dsl_name):
        found.add(own_kernels.ATTENTION)
    return sorted(found)
