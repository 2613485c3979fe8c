"""How near a result must come to the right one, by element type and device, as data with its source."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TORCH = "torch.testing.assert_close, table of default tolerances"
_EXACT = "torch.testing.assert_close: a type that its table does not have is compared exactly"
_QUANTIZED = f"{_TORCH}: quantized values are compared as float32"
_TF32 = (
    "TF32 keeps 10 bits of the mantissa, as float16 does (NVIDIA A100 whitepaper,"
    " TF32 Tensor Cores); so the tolerance of float16"
)
_BF16 = (
    "bfloat16 keeps 7 bits of the mantissa (oneDNN, primitive attribute fpmath mode bf16);"
    " so the tolerance of bfloat16"
)
_MPS = "PyTorch test/test_mps.py, what consistency tests allow operators that sum"


class Tolerance(NamedTuple):
    """|actual - expected| <= atol + rtol * |expected|, element by element; source: who says so."""

    rtol: float
    atol: float
    source: str

    @property
    def both(self) -> dict[str, float]:
        """The two numbers by the names that assert_close, numpy and pytest's users give them."""
        return {"rtol": self.rtol, "atol": self.atol}


DEFAULTS: dict[str, Tolerance] = {
    "float16": Tolerance(1e-3, 1e-5, _TORCH),
    "bfloat16": Tolerance(1.6e-2, 1e-5, _TORCH),
    "float32": Tolerance(1.3e-6, 1e-5, _TORCH),
    "float64": Tolerance(1e-7, 1e-7, _TORCH),
    "complex32": Tolerance(1e-3, 1e-5, _TORCH),
    "complex64": Tolerance(1.3e-6, 1e-5, _TORCH),
    "complex128": Tolerance(1e-7, 1e-7, _TORCH),
    **{
        name: Tolerance(1.3e-6, 1e-5, _QUANTIZED)
        for name in ("quint8", "quint4x2", "quint2x4", "qint8", "qint32")
    },
}
BY_DEVICE: dict[tuple[str, str], Tolerance] = {
    ("mps", "float32"): Tolerance(3e-5, 1e-4, _MPS),
    ("mps", "complex64"): Tolerance(3e-5, 1e-4, _MPS),
    ("mps", "float16"): Tolerance(1e-2, 2e-2, _MPS),
    ("mps", "bfloat16"): Tolerance(5e-2, 5e-2, _MPS),
}
BY_PRECISION: dict[str, Tolerance] = {
    "tf32": Tolerance(1e-3, 1e-5, _TF32),
    "bf16": Tolerance(1.6e-2, 1e-5, _BF16),
}
"""For products of float32, where a switch lets their factors be rounded."""

_SWITCHES = {
    "cuda": ("cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision"),
    "cpu": ("mkldnn.matmul.fp32_precision", "mkldnn.conv.fp32_precision"),
}


def tolerance(dtype: Any, device: str = "cpu", *, precision: str = "") -> Tolerance:
    """Return how near a result of an element type must come on a device.

    dtype: a name such as "float16", or a dtype of torch or numpy. precision: how products of float32
    are rounded: "ieee", "tf32" or "bf16"; "" for what this process's switches say, of matrix products and
    convolutions the coarser. Raises BadInput or UnknownName.
    """
    from mlbackends.model.errors import UnknownName
    from mlbackends.switches import store
    from mlbackends.testing.devices import check_name
    from mlbackends.testing.element_types import name_of_type

    name = name_of_type(dtype, tuple(DEFAULTS))
    check_name(str(device))
    kind = str(device).partition(":")[0]
    chosen = BY_DEVICE.get((kind, name)) or DEFAULTS.get(name) or Tolerance(0.0, 0.0, _EXACT)
    if name not in ("float32", "complex64"):
        return chosen
    precisions = ("ieee", *BY_PRECISION)
    if precision and precision not in precisions:
        raise UnknownName("precision", precision, precisions)
    seen = [str(store.read(switch)) for switch in _SWITCHES.get(kind, ()) if not precision]
    coarsest = max((each for each in seen if each in precisions), key=precisions.index, default="")
    rounded = BY_PRECISION.get(precision or coarsest)
    return rounded if rounded and rounded.rtol > chosen.rtol else chosen
