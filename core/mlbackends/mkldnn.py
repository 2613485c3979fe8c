"""oneDNN, by its former name: its switches, whether it is here, and the scope in which it prints."""

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
    """Return whether a oneDNN is here that works, the one inside torch too."""
    return availability.is_available("onednn")


def is_acl_available() -> bool:
    """Return whether the Arm Compute Library is here, which oneDNN uses on Arm processors."""
    return availability.is_available("acl")


install(__name__, "MkldnnModule")
