"""KleidiAI: Arm's kernels for processors."""

from mlbackends.switches import availability
from mlbackends.switches.modules import install


def is_available() -> bool:
    """Return whether KleidiAI is here and answers; it exists on Arm processors alone."""
    return availability.is_available("kleidiai")


install(__name__, "_KleidiaiModule")
