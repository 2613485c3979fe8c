"""Products in memory: the precision that the switches ask for, and the kinds of arrays that go in."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlbackends
from mlbackends.switches import store
from mlbackends_kernels.operations._precision import without_last_bits

PRECISION, ENABLED = "mkldnn.matmul.fp32_precision", "mkldnn.enabled"


def numbers(*shape: int, dtype: str = "f4") -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


def nearest_by_search(number: float, dropped: int) -> float:
    """Return the nearest float32 with so many zero bits at its end, by looking at both neighbours."""
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    below = bits >> dropped << dropped
    above = below + (1 << dropped)
    # As numbers without sign or infinity: halfway between the two is the same as on the bits.
    if bits - below == above - bits:
        chosen = below if not (below >> dropped) & 1 else above
    else:
        chosen = below if bits - below < above - bits else above
    return float(struct.unpack("<f", struct.pack("<I", chosen))[0])


@given(st.floats(width=32, allow_nan=False), st.sampled_from([13, 16]))
def test_rounding_goes_to_the_nearest_and_ties_to_even(number: float, dropped: int) -> None:
    got = float(without_last_bits(np.array([number], "f4"), dropped)[0])
    expected = nearest_by_search(number, dropped)
    assert got == expected
    assert np.signbit(got) == np.signbit(expected)


@pytest.mark.parametrize("dropped", [13, 16])
def test_rounding_keeps_what_is_no_number_and_overflows_to_infinity(dropped: int) -> None:
    odd = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000], "u4").view("f4")
    assert np.isnan(without_last_bits(odd, dropped)).all()
    largest = np.array([np.finfo("f4").max, -np.inf, np.inf, -0.0], "f4")
    assert without_last_bits(largest, dropped).tolist() == [np.inf, -np.inf, np.inf, 0.0]


@pytest.mark.parametrize(
    ("word", "dropped"), [("none", 0), ("ieee", 0), ("tf32", 13), ("bf16", 16)]
)
def test_float32_is_rounded_as_the_switch_says(word: str, dropped: int) -> None:
    a, b = numbers(5, 7, 33), numbers(33, 9)
    kept = [without_last_bits(each, dropped) if dropped else each for each in (a, b)]
    with store.applied({PRECISION: word}):
        assert np.array_equal(mlbackends.matmul(a, b), kept[0] @ kept[1])


@pytest.mark.parametrize("switch", ["mkldnn.fp32_precision", "fp32_precision"])
def test_a_parent_s_precision_is_inherited(switch: str) -> None:
    a = numbers(16, 16)
    with store.applied({switch: "bf16"}):
        got = mlbackends.matmul(a, a)
        with store.applied({PRECISION: "ieee"}):
            exact = mlbackends.matmul(a, a)
    rounded = without_last_bits(a, 16)
    assert np.array_equal(got, rounded @ rounded)
    assert np.array_equal(exact, a @ a)


def test_the_older_switch_reaches_the_product() -> None:
    a = numbers(16, 16)
    with store.applied({"float32_matmul_precision": "medium"}):
        assert not np.array_equal(mlbackends.matmul(a, a), a @ a)


def test_without_mkldnn_the_precision_is_left_alone() -> None:
    a = numbers(16, 16)
    with store.applied({PRECISION: "bf16", ENABLED: False}):
        assert np.array_equal(mlbackends.matmul(a, a), a @ a)


@pytest.mark.parametrize("dtype", ["f2", "f8", "c8", "c16", "i4", "u1"])
def test_other_types_are_exact_whatever_the_precision(dtype: str) -> None:
    a = (numbers(12, 12) * 3).astype(dtype) if dtype != "u1" else np.eye(12, dtype="u1")
    wide = a.astype("f4") if dtype == "f2" else a
    with store.applied({PRECISION: "bf16"}):
        got = mlbackends.matmul(a, a)
    assert got.dtype == a.dtype
    assert np.array_equal(got, (wide @ wide).astype(dtype))


def test_float16_is_added_up_in_float32() -> None:
    a = np.full((1, 4096), 1, "f2")
    # In float16, 2048 + 1 is 2048.
    assert float(mlbackends.matmul(a, a.T)[0, 0]) == 4096


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2)),
     ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3, 4), (4,))],
)  # fmt: skip
def test_shapes_are_those_of_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = numbers(*a), numbers(*b)
    got = mlbackends.matmul(left, right)
    assert got.shape == (left @ right).shape
    assert np.allclose(got, left @ right)


@pytest.mark.parametrize(
    ("a", "b", "fragment"),
    [
        (numbers(2, 3), numbers(2, 3), "the last dimension of a is 3, and b needs 2"),
        (numbers(3), numbers(2, 3), "the last dimension of a is 3, and b needs 2"),
        (numbers(2, 2, 2), numbers(3, 2, 2), "(2,) and (3,) do not broadcast"),
        (numbers(), numbers(2), "at least one dimension"),
        (numbers(2, 2), numbers(2, 2, dtype="f8"), "b is float64, and a is float32"),
    ],
)
def test_operands_that_do_not_fit_are_refused(a: Any, b: Any, fragment: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        mlbackends.matmul(a, b)
    assert fragment in str(caught.value)


@pytest.mark.parametrize("thing", [3, None, "text", object()])
def test_what_is_no_tensor_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError):
        mlbackends.matmul(thing, numbers(2, 2))


class OnlyDlpack:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_an_array_of_another_library_is_taken() -> None:
    a = numbers(3, 3)
    assert np.array_equal(mlbackends.matmul(OnlyDlpack(a), OnlyDlpack(a)), a @ a)
    turned = numbers(5, 3).T
    assert np.allclose(mlbackends.matmul(turned, turned.T), turned @ turned.T)


def test_operands_are_left_as_they_were() -> None:
    a = numbers(8, 8)
    before = a.copy()
    with store.applied({PRECISION: "bf16"}):
        mlbackends.matmul(a, a)
    assert np.array_equal(a, before)
