"""oneDNN, by its former name: its switches, whether it is installed, and the scope in which it prints."""

from mlbackends.switches import availability
from mlbackends.switches.modules import FP32Precision, install

VERBOSE_OFF = 0
VERBOSE_ON = 1
VERBOSE_ON_CREATION = 2

matmul = FP32Precision("mkldnn", "matmul")
conv = FP32Precision("mkldnn", "conv")
rnn = FP32Precision("mkldnn", "rnn")
_LAZY = {"verbose": "mlbackends.tracing.verbose:OnednnVerbose"}


def is_available() -> bool:
    """Return whether oneDNN works; the copy inside torch counts."""
    return availability.is_available("onednn")


def is_acl_available() -> bool:
    """Return whether the Arm Compute Library works, which oneDNN uses on Arm CPUs."""
    return availability.is_available("acl")


install(__name__, "MkldnnModule")
