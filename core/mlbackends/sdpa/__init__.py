"""Scaled-dot-product attention: backends, their constraints and switches, and the dispatcher.

The public names are loaded at their first use: reading a switch loads no dispatcher.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlbackends.sdpa.attend import (
        scaled_dot_product_attention,
        scaled_dot_product_attention_backward,
    )
    from mlbackends.sdpa.backend import Gradients
    from mlbackends.sdpa.bias import (
        CausalBias,
        CausalVariant,
        causal_lower_right,
        causal_upper_left,
    )
    from mlbackends.sdpa.params import SDPAParams
    from mlbackends.sdpa.sdp_backend import SDPBackend
    from mlbackends.sdpa.switches import sdpa_kernel

_HOMES = {
    "CausalBias": "bias",
    "CausalVariant": "bias",
    "Gradients": "backend",
    "SDPAParams": "params",
    "SDPBackend": "sdp_backend",
    "causal_lower_right": "bias",
    "causal_upper_left": "bias",
    "scaled_dot_product_attention": "attend",
    "scaled_dot_product_attention_backward": "attend",
    "sdpa_kernel": "switches",
}

__all__ = [
    "CausalBias",
    "CausalVariant",
    "Gradients",
    "SDPAParams",
    "SDPBackend",
    "causal_lower_right",
    "causal_upper_left",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "sdpa_kernel",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
