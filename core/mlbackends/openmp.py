"""OpenMP runtimes."""

from mlbackends.switches import availability
from mlbackends.switches.modules import install


def is_available() -> bool:
    """Return whether an OpenMP runtime ran a parallel region."""
    return availability.is_available("openmp")


install(__name__, "_OpenmpModule")
