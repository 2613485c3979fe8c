"""MKL: whether it is installed and computes, and the scope in which it prints its calls."""

from mlbackends.switches import availability
from mlbackends.switches.modules import install

VERBOSE_OFF = 0
VERBOSE_ON = 1
_LAZY = {"verbose": "mlbackends.tracing.verbose:MklVerbose"}


def is_available() -> bool:
    """Return whether MKL computed a correct result; the copy inside torch counts."""
    return availability.is_available("mkl")


install(__name__, "_MklModule")
