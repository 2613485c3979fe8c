"""KleidiAI: Arm's kernels for processors."""

from mlbackends.switches import availability
from mlbackends.switches.modules import install


def is_available() -> bool:
    """Return whether KleidiAI is installed and answers; it exists only for Arm CPUs."""
    return availability.is_available("kleidiai")


install(__name__, "_KleidiaiModule")
