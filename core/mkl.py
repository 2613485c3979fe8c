"""MKL: whether it is here and computes, and the scope in which it prints what it does."""

from mlbackends.flag_modules import install

VERBOSE_OFF = 0
VERBOSE_ON = 1
_LAZY = {"verbose": "mlbackends.verbose_scopes:MklVerbose"}


def is_available() -> bool:
    """Tell whether an MKL is here that computed something right, the one inside torch too."""
    from mlbackends import answers

    return answers.is_available("mkl")


install(__name__, "_MklModule")
