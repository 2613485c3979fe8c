"""How near a result must come."""

from __future__ import annotations

import pytest

from mlbackends.base.errors import UnknownName
from mlbackends.switches import store
from mlbackends.testing import tolerance
from mlbackends.testing.tolerances import BY_DEVICE, BY_PRECISION, DEFAULTS


def test_every_number_has_a_source() -> None:
    for default in (*DEFAULTS.values(), *BY_DEVICE["mps"].values(), *BY_PRECISION.values()):
        assert default.rtol > 0 and default.atol > 0 and len(default.source) > 20


def test_no_device_is_held_to_more_than_the_default() -> None:
    for name, mp in BY_DEVICE["mps"].items():
        assert mp.rtol >= DEFAULTS[name].rtol and mp.atol >= DEFAULTS[name].atol


@pytest.mark.parametrize("dtype", ["float16", "half", "torch.float16", "torch.half"])
def test_a_type_has_one_tolerance_under_all_its_names(dtype: str) -> None:
    assert tolerance(dtype) == DEFAULTS["float16"]


def test_dtypes_of_numpy_are_taken() -> None:
    numpy = pytest.importorskip("numpy")

    assert tolerance(numpy.float64) == tolerance(numpy.dtype("float64")) == DEFAULTS["float64"]
    assert tolerance(numpy.bool_).both == {"rtol": 0.0, "atol": 0.0}


def test_integers_are_exact_on_every_device() -> None:
    for device in ("cpu", "cuda:1", "mps"):
        assert tolerance("int32", device)[:2] == (0.0, 0.0)


def test_a_switch_that_lets_products_be_rounded_widens_the_tolerance() -> None:
    with store.restored("cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision"):
        store.write("cudnn.conv.fp32_precision", "ieee")
        store.write("cuda.matmul.fp32_precision", "ieee")
        exact = tolerance("float32", "cuda")
        store.write("cuda.matmul.fp32_precision", "tf32")
        rounded = tolerance("float32", "cuda")
        double = tolerance("float64", "cuda")
        asked = tolerance("float32", "cuda", precision="ieee")

    assert exact == asked == DEFAULTS["float32"]
    assert rounded == BY_PRECISION["tf32"]
    assert double == DEFAULTS["float64"]


def test_the_switch_of_the_cpu_says_nothing_about_a_gpu() -> None:
    with store.restored("mkldnn.matmul.fp32_precision"):
        store.write("mkldnn.matmul.fp32_precision", "bf16")

        assert tolerance("float32", "cpu") == BY_PRECISION["bf16"]
        assert tolerance("float32", "xpu") == DEFAULTS["float32"]


@pytest.mark.parametrize(("arguments", "meant"), [(("flaot16",), "float16"), (("float32", "cud"), "cuda")])
def test_a_wrong_name_is_told_with_the_nearest(arguments: tuple[str, ...], meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        tolerance(*arguments)

    assert meant in caught.value.hint


def test_a_wrong_precision_is_told() -> None:
    with pytest.raises(UnknownName, match="precision"):
        tolerance("float32", "cuda", precision="tf23")
