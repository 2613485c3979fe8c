"""Our table of tolerances begins with torch's, and takes its dtypes."""

from __future__ import annotations

import pytest

from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.testing import tolerance, unsupported
from mlbackends.testing.tolerances import DEFAULTS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NAMES = sorted({*ITEM_BYTES, *DEFAULTS})


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_are_those_of_torch(name: str) -> None:
    from torch.testing._comparison import default_tolerances

    dtype = getattr(torch, name)
    ours = tolerance(dtype, "xpu")

    assert (ours.rtol, ours.atol) == default_tolerances(dtype)


def test_limits_take_dtypes() -> None:
    assert unsupported("mps", torch.float64) == unsupported("mps", "double") != ""
