"""How close a result must be to the exact one, by element type and device, with the source of each number."""

from typing import Any, NamedTuple

from mlbackends.base.errors import UnknownName
from mlbackends.base.tables import table
from mlbackends.switches import store
from mlbackends.testing.devices import check_name
from mlbackends.testing.element_types import name_of_type


class Tolerance(NamedTuple):
    """|actual - expected| <= atol + rtol * |expected|, element by element; source: where it is documented."""

    rtol: float
    atol: float
    source: str

    @property
    def both(self) -> dict[str, float]:
        """The two numbers by the names that assert_close, numpy and pytest's users give them."""
        return {"rtol": self.rtol, "atol": self.atol}


def _rows(name: str) -> dict[str, Tolerance]:
    data = table("testing/tolerances")
    return {
        key: Tolerance(row["rtol"], row["atol"], data["sources"][row["source"]])
        for key, row in data[name].items()
    }


DEFAULTS = _rows("element_types")
BY_DEVICE = {"mps": _rows("mps")}
#: For products of float32, where a switch lets their factors be rounded.
BY_PRECISION = _rows("precisions")
_SWITCHES = {
    "cuda": ("cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision"),
    "cpu": ("mkldnn.matmul.fp32_precision", "mkldnn.conv.fp32_precision"),
}


def tolerance(dtype: Any, device: str = "cpu", *, precision: str = "") -> Tolerance:
    """Return how near a result of an element type must come on a device.

    dtype: a name such as "float16", or a dtype of torch or numpy. precision: how products of float32
    are rounded: "ieee", "tf32" or "bf16"; "" for this process's switches, of matrix products and
    convolutions the coarser. Raises BadInput or UnknownName.
    """
    name = name_of_type(dtype, tuple(DEFAULTS))
    check_name(str(device))
    kind = str(device).partition(":")[0]
    chosen = BY_DEVICE.get(kind, {}).get(name) or DEFAULTS.get(name) or _rows("other_element_types")["any"]
    if name not in ("float32", "complex64"):
        return chosen
    precisions = ("ieee", *BY_PRECISION)
    if precision and precision not in precisions:
        raise UnknownName("precision", precision, precisions)
    values = [str(store.read(switch)) for switch in _SWITCHES.get(kind, ()) if not precision]
    coarsest = max((value for value in values if value in precisions), key=precisions.index, default="")
    rounded = BY_PRECISION.get(precision or coarsest)
    return rounded if rounded and rounded.rtol > chosen.rtol else chosen
