"""Scaled-dot-product attention: backends, their constraints and switches, and the dispatcher.

The public names are loaded at their first use.
"""

from mlbackends.base.lazy import lazy_names

_HOMES = {
    "attend": ("replace_attention", "scaled_dot_product_attention", "scaled_dot_product_attention_backward"),
    "backend": ("Gradients",),
    "calls": ("last_attention",),
    "bias": ("CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"),
    "cuda_surface": ("SDPAParams",),
    "switches": ("SDPBackend", "sdpa_kernel"),
}
_LAZY = {name: f"{__name__}.{home}:{name}" for home, names in _HOMES.items() for name in names}
__all__ = sorted(_LAZY)  # noqa: PLE0605  of _LAZY
__getattr__, __dir__ = lazy_names(__name__, _LAZY)
