"""What tests want to know of a machine: what is usable here, how near a result must be, what cannot be.

`mlbackends.testing.plugin` is the plugin that pytest loads; this package can be used without pytest.
"""

_HOMES = {
    "attention": ("UsableAttention",),
    "devices": ("torch_device",),
    "element_types": ("unsupported",),
    "requirements": ("why_unmet",),
    "tolerances": ("Tolerance", "tolerance"),
}
_LAZY = {name: f"{__name__}.{home}:{name}" for home, names in _HOMES.items() for name in names}
__all__ = sorted(_LAZY)  # noqa: PLE0605  of _LAZY


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(_LAZY[name].partition(":")[0]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
