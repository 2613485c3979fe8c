"""NNPACK: convolutions on processors, inside torch. Its switch has no attribute, in torch neither."""

from mlbackends.switches import availability
from mlbackends.switches.modules import install

__all__ = ["flags", "is_available", "set_flags"]


def is_available() -> bool:
    """Return whether an NNPACK is here that supports this processor, the one inside torch too."""
    return availability.is_available("nnpack")


install(__name__, "_NnpackModule")
