"""Exact results and units, compared with fractions, decimals and NumPy's own element types."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from mlbackends.conform.problems import parse
from mlbackends.conform.programs import arithmetic

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
#: bfloat16 as its bits in float32 are rounded, ties to even: the value, and what it becomes.
BFLOAT16 = [
    (0x3F80_0000, 0x3F80_0000),
    (0x3F80_8000, 0x3F80_0000),
    (0x3F81_8000, 0x3F82_0000),
    (0x3F80_8001, 0x3F81_0000),
    (0x0000_8001, 0x0001_0000),
    (0x0000_8000, 0x0000_0000),
    (0x7F7F_8000, 0x7F80_0000),
    (0xFF7F_7FFF, 0xFF7F_0000),
]


def problem_of(line: str) -> dict[str, Any]:
    return asdict(parse(line))


def judged(line: str, change: Any = lambda values, unit: values) -> dict[str, Any]:
    """Judge the exact result of a problem, changed."""
    problem = problem_of(line)
    arrays = arithmetic.inputs(problem)
    values, unit = arithmetic.exact(problem, arrays)
    result: dict[str, Any] = arithmetic.judged(problem, arrays, change(values, unit))
    return result


@given(st.floats())
def test_float16_and_float32_are_rounded_as_numpy_rounds(value: float) -> None:
    for dtype in ("float16", "float32"):
        with np.errstate(all="ignore"):
            expected = np.array(value).astype(dtype).astype(np.float64)
        np.testing.assert_array_equal(arithmetic.rounded(value, dtype), expected)


@pytest.mark.parametrize(("bits", "expected"), BFLOAT16, ids=hex)
def test_bfloat16_is_rounded_to_the_nearest_even(bits: int, expected: int) -> None:
    value, number = np.array([bits, expected], np.uint32).view(np.float32)

    assert arithmetic.rounded(float(value), "bfloat16") == float(number)


@given(st.lists(FLOAT32, min_size=6, max_size=6))
def test_a_product_is_that_of_fractions(numbers: list[float]) -> None:
    a, b = np.array(numbers[:3])[None], np.array(numbers[3:])[:, None]
    problem = problem_of("gemm float32 m=1 n=1 k=3")

    values, unit = arithmetic.exact(problem, [a, b])

    wanted = sum(Fraction(x) * Fraction(y) for x, y in zip(numbers[:3], numbers[3:], strict=True))
    error = abs(Fraction(*values[0, 0].as_integer_ratio()) - wanted)
    assert error <= Fraction(*unit[0, 0].as_integer_ratio()) / 1000


@given(st.floats(-80, 80, width=32))
def test_an_exponential_is_that_of_decimals(number: float) -> None:
    values, unit = arithmetic.exact(problem_of("exp float32 rows=1 size=1"), [np.array([[number]])])

    with localcontext() as context:
        context.prec = 40
        error = abs(Decimal(str(values[0, 0])) - Decimal(number).exp())
    assert error <= Decimal(float(unit[0, 0])) / 1000


def test_a_convolution_is_a_sum_over_its_window() -> None:
    problem = problem_of(
        "convolution float32 batch=1 channels=2 height=4 width=3 features=2 kernel=2 stride=2 padding=1"
    )
    image, kernel = arithmetic.inputs(problem)
    values, _ = arithmetic.exact(problem, [image, kernel])
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))

    assert values.shape == (1, 2, 3, 2)
    wanted = (padded[0, :, 2:4, 2:4] * kernel[1]).sum()
    assert math.isclose(float(values[0, 1, 1, 1]), wanted, rel_tol=1e-14)


def test_softmax_layer_norm_and_attention_are_their_formulas() -> None:
    problem = problem_of("attention float32 batch=1 heads=1 queries=2 keys=3 width=4")
    query, key, value = arithmetic.inputs(problem)
    scores = np.exp(query @ key.swapaxes(-1, -2) / 2)
    scores /= scores.sum(-1, keepdims=True)
    np.testing.assert_allclose(
        np.float64(arithmetic.exact(problem, [query, key, value])[0]), scores @ value, rtol=1e-12
    )
    problem = problem_of("layer-norm float32 rows=2 size=5")
    x, weight, bias = arithmetic.inputs(problem)
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 2.0**-17)
    np.testing.assert_allclose(
        np.float64(arithmetic.exact(problem, [x, weight, bias])[0]), normal * weight + bias, rtol=1e-12
    )
    problem = problem_of("softmax float64 rows=2 size=5 values=large")
    (x,) = arithmetic.inputs(problem)
    assert np.allclose(np.float64(arithmetic.exact(problem, [x])[0]).sum(-1), 1)


def test_a_transform_is_numpys() -> None:
    problem = problem_of("fft complex128 rows=2 size=12 seed=4")
    (x,) = arithmetic.inputs(problem)

    np.testing.assert_allclose(np.complex128(arithmetic.exact(problem, [x])[0]), np.fft.fft(x), atol=1e-13)


@pytest.mark.parametrize("operation", ["erf", "sum", "softmax"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_one_unit_is_right_and_twenty_are_wrong(operation: str, dtype: str) -> None:
    line = f"{operation} {dtype} rows=3 size=9 seed=5"

    assert judged(line, lambda values, unit: values + unit)["answer"] == "right"
    wrong = judged(line, lambda values, unit: values + 20 * unit * (abs(values) == abs(values).max()))
    assert (wrong["answer"], round(wrong["units"])) == ("wrong", 20)


def test_a_small_element_may_be_inexact_but_the_largest_may_not() -> None:
    def at_the_end(values: Any, unit: Any) -> Any:
        return values + np.where(abs(values) == abs(values).max(), 40 * unit, 0)

    def at_the_start(values: Any, unit: Any) -> Any:
        return values + np.where(abs(values) == abs(values).min(), 40 * unit, 0)

    assert judged("exp float32 rows=1 size=9 seed=2", at_the_end)["answer"] == "wrong"
    assert judged("exp float32 rows=1 size=9 seed=2", at_the_start)["answer"] == "inexact"


@pytest.mark.parametrize("operation", ["max", "cast"])
def test_one_bit_is_too_much_where_nothing_is_rounded(operation: str) -> None:
    line = f"{operation} float16 rows=2 size=5 seed=1"

    assert judged(line)["answer"] == "right"
    assert judged(line, lambda values, unit: values * (1 + 2.0**-10))["answer"] == "wrong"


@pytest.mark.parametrize("values", ["nan", "infinite"])
def test_a_misplaced_nan_or_infinity_is_wrong(values: str) -> None:
    line = f"max float32 rows=3 size=5 values={values} seed=1"

    assert judged(line)["answer"] == "right"
    found = judged(line, lambda values, unit: np.where(np.isfinite(values), values, 1.0))
    assert found["answer"] == "wrong"
    assert "NaN or infinity is missing or misplaced in 1 of 3 elements" in found["message"]
    assert judged(line, lambda values, unit: values * np.nan)["answer"] == "wrong"


def test_subnormal_numbers_may_be_flushed() -> None:
    line = "sum float32 rows=3 size=7 values=subnormal seed=1"

    assert judged(line)["answer"] == "right"
    assert judged(line, lambda values, unit: values * 0)["answer"] == "flushed"
    assert judged(line, lambda values, unit: values + 1)["answer"] == "wrong"


def test_another_shape_is_wrong_and_no_numbers_are_right() -> None:
    assert "shape" in judged("sum float32 rows=3 size=7", lambda values, unit: values[:2])["message"]
    assert judged("gemm float32 m=0 n=3 k=2") == {"answer": "right"}
    assert judged("gemm float32 m=2 n=3 k=0")["answer"] == "right"


def test_the_shorter_type_in_which_it_was_computed_is_found() -> None:
    problem = problem_of("gemm float32 m=9 n=9 k=50 seed=1")
    arrays = arithmetic.inputs(problem)
    for dtype in ("bfloat16", "float16"):
        a, b = (arithmetic.rounded(one, dtype) for one in arrays)
        found = arithmetic.judged(problem, arrays, a @ b)
        assert (found["answer"], found["computed_as"]) == ("wrong", dtype)


def test_an_error_of_float32_in_float64_is_named() -> None:
    found = judged("erf float64 rows=2 size=9", lambda values, unit: np.float64(values.astype(np.float32)))
    assert (found["answer"], found["computed_as"]) == ("wrong", "float32")


def test_the_sum_of_one_repeated_element_is_a_product() -> None:
    problem = problem_of("sum float32 rows=1 size=2147483656 layout=zero-stride seed=1")
    (x,) = arithmetic.inputs(problem)

    assert x.shape == (1, 1)
    assert float(arithmetic.exact(problem, [x])[0][0]) == float(x[0, 0]) * 2147483656
