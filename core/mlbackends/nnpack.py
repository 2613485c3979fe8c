"""NNPACK: convolutions on processors, inside torch. Its switch has no attribute, in torch neither."""

from mlbackends.switches import availability
from mlbackends.switches.modules import install

__all__ = ["flags", "is_available", "set_flags"]


def is_available() -> bool:
    """Return whether NNPACK supports this CPU; the copy inside torch counts."""
    return availability.is_available("nnpack")


install(__name__, "_NnpackModule")
