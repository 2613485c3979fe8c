"""cuDNN: its switches, and the version of the installed copy."""

from typing import TYPE_CHECKING

from mlbackends.switches import availability, store
from mlbackends.switches.modules import FP32Precision, install
from mlbackends.switches.startup import warn

if TYPE_CHECKING:
    from typing import Any

#: Names of the element types that cuDNN's layers accept.
CUDNN_TENSOR_DTYPES = frozenset({"float16", "float32", "float64"})

conv = FP32Precision("cuda", "conv")
_LAZY = {"rnn": "mlbackends.cudnn.rnn"}


def is_available() -> bool:
    """Return whether cuDNN can be opened and reports a version, with or without a GPU."""
    return availability.opens("cudnn")


def version() -> int | None:
    """Return the version that cuDNN itself returns: 91002 for 9.10.2, 8907 for 8.9.7; None without one.

    Source: cudnn_version.h; the number of digits changed with 9.0.
    """
    parts = [int(part) for part in availability.version("cudnn").split(".")[:3] if part.isdecimal()]
    if len(parts) < 3:
        return None
    major, minor, patch = parts
    return major * (10000 if major >= 9 else 1000) + minor * 100 + patch


def is_acceptable(tensor: "Any") -> bool:
    """Return whether cuDNN could compute with a tensor: it is enabled and works, and the tensor is on a GPU.

    tensor: anything with `device` and `dtype` as torch's tensors have them. Raises AttributeError for others.
    """
    if not store.read("cudnn.enabled"):
        return False
    kind = getattr(tensor.device, "type", str(tensor.device).partition(":")[0])
    if kind != "cuda" or str(tensor.dtype).rpartition(".")[2] not in CUDNN_TENSOR_DTYPES:
        return False
    if is_available():
        return True
    warn("cuDNN was not found, or cannot be opened; see `backends info cudnn`")
    return False


install(__name__, "CudnnModule")
