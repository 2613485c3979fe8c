"""What tests want to know of a machine: what is usable here, how near a result must be, what cannot be.

`mlbackends.testing.plugin` is the plugin that pytest loads; this package can be used without pytest.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlbackends.testing.attention import UsableAttention
    from mlbackends.testing.devices import torch_device
    from mlbackends.testing.element_types import unsupported
    from mlbackends.testing.requirements import why_unmet
    from mlbackends.testing.tolerances import Tolerance, tolerance

_HOMES = {
    "Tolerance": "tolerances",
    "UsableAttention": "attention",
    "tolerance": "tolerances",
    "torch_device": "devices",
    "unsupported": "element_types",
    "why_unmet": "requirements",
}

__all__ = ["Tolerance", "UsableAttention", "tolerance", "torch_device", "unsupported", "why_unmet"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
