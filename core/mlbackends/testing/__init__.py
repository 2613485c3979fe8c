"""What tests want to know of a machine: what is usable here, how near a result must be, what cannot be.

`mlbackends.testing.plugin` is the plugin that pytest loads; this package can be used without pytest.
"""

from mlbackends.base.lazy import lazy_names

_HOMES = {
    "attention": ("UsableAttention",),
    "devices": ("torch_device",),
    "element_types": ("unsupported",),
    "loadable": ("requires_loadable", "why_not_loadable"),
    "requirements": ("why_unmet",),
    "tolerances": ("Tolerance", "tolerance"),
}
_LAZY = {name: f"{__name__}.{home}:{name}" for home, names in _HOMES.items() for name in names}
__all__ = sorted(_LAZY)  # noqa: PLE0605  of _LAZY
__getattr__, __dir__ = lazy_names(__name__, _LAZY)
