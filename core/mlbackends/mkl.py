"""MKL: whether it is here and computes, and the scope in which it prints what it does."""

from mlbackends.switches import availability
from mlbackends.switches.modules import install

VERBOSE_OFF = 0
VERBOSE_ON = 1
_LAZY = {"verbose": "mlbackends.tracing.verbose:MklVerbose"}


def is_available() -> bool:
    """Return whether an MKL is here that computed something right, the one inside torch too."""
    return availability.is_available("mkl")


install(__name__, "_MklModule")
