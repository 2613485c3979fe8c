"""The inputs, the exact result, and the judge that holds others to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify import problem_size
from mlbackends_kernels.checking import exact
from mlbackends_kernels.checking.values import Values
from mlbackends_kernels.tensors import arithmetic

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends_kernels.checking.exact import Exact

SHAPE = "--shape 2,3,9,8 "


def values(text: str, folder: Path, seed: int = 0) -> Values:
    (wording,) = parse(text)
    return Values(wording.problem(Device("cpu", 0)), str(folder), seed)


def right(text: str, folder: Path, seed: int = 0) -> Exact:
    """Return the result that is right for a problem."""
    return values(text, folder, seed).right[""]


def rounded(made: Exact) -> Any:
    """Return what is exact, rounded once to the type of the elements."""
    if made.dtype == "bfloat16":
        return arithmetic.bfloat16_from_float32(made.exact.astype("float32"))
    return made.exact.astype(made.dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_exact_result_rounded_once_is_within_the_plain_computation_s_error(
    dtype: str, tmp_path: Path
) -> None:
    made = right(f"{SHAPE}--dtype {dtype}", tmp_path)
    told = made.judge(rounded(made), tolerance=1.0)

    assert told["largest_absolute"] <= made.reference_error
    assert told["misplaced"] == 0
    assert 0 <= told["in_reference_errors"] <= 1


def test_errors_are_those_of_the_definition(tmp_path: Path) -> None:
    made = right(SHAPE, tmp_path)
    wrong = made.exact.copy()
    wrong[1, 2, 3, 4] += 0.25
    told = made.judge(wrong, tolerance=2.0)

    assert told["largest_absolute"] == pytest.approx(0.25)
    assert told["largest_relative"] == pytest.approx(0.25 / abs(made.exact[1, 2, 3]).max())
    assert told["worst"] == [1, 2, 3, 4]
    largest = np.abs(made.exact).max()
    assert told["largest_allowed"] == 2 * made.reference_error + 4 * 2.0**-23 * largest


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_and_should_be_is_misplaced(bad: float, tmp_path: Path) -> None:
    made = right(SHAPE, tmp_path)
    wrong = made.exact.copy()
    wrong[0, 1, 2, 3] = bad
    told = made.judge(wrong, tolerance=2.0)

    assert told["misplaced"] == 1
    assert told["worst"] == [0, 1, 2, 3]
    assert np.isfinite(told["largest_absolute"])


def test_what_is_no_number_on_both_sides_is_right(tmp_path: Path) -> None:
    made = right(SHAPE, tmp_path)
    made.exact[0, 0, 0, :2] = np.nan, np.inf

    assert made.judge(made.exact.copy(), tolerance=2.0)["misplaced"] == 0
    assert made.judge(np.where(np.isinf(made.exact), -np.inf, made.exact), 2.0)["misplaced"] == 1


def test_rows_that_see_nothing_are_zero(tmp_path: Path) -> None:
    made = right("--shape 1,1,9,8 --kv-len 3 --mask lower-right", tmp_path)

    assert not made.exact[0, 0, :6].any()
    assert made.exact[0, 0, 6:].all()


def test_files_hold_the_elements_as_they_lie_in_memory(tmp_path: Path) -> None:
    inside = values(f"{SHAPE}--layout bshd --mask 2,1,1,9", tmp_path)
    query = np.fromfile(inside.files["query"], "float32").reshape(2, 9, 3, 8)
    other = tmp_path / "other"
    other.mkdir()
    usual = values(f"{SHAPE}--mask 2,1,1,9", other)
    expected = np.fromfile(usual.files["query"], "float32").reshape(2, 3, 9, 8)

    assert np.array_equal(query.transpose(0, 2, 1, 3), expected)
    assert np.fromfile(inside.files["mask"], "float32").size == 18
    assert np.array_equal(inside.right[""].exact, usual.right[""].exact)


def test_a_result_of_another_size_is_refused(tmp_path: Path) -> None:
    made = right(SHAPE, tmp_path)
    path = tmp_path / "result.bin"
    rounded(made)[..., :-1].tofile(path)

    with pytest.raises(ValueError, match="has 1512 bytes; it must have 1728: 432 elements of float32"):
        made.read(str(path), made.exact.shape)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_exact_gradients_rounded_once_are_right(dtype: str, tmp_path: Path) -> None:
    words = f"{SHAPE}--dtype {dtype} --mask 3,1,9 --mask-gradient --dropout 0.25"
    made = values(words, tmp_path).right

    assert list(made) == ["", "query", "key", "value", "mask"]
    for array in made.values():
        told = array.judge(rounded(array), tolerance=1.0)
        assert told["largest_absolute"] <= told["largest_allowed"]
        assert array.reference_error > 0


@pytest.mark.parametrize("name", ["query", "key", "value", "mask"])
def test_an_exact_gradient_is_the_slope_of_the_result(name: str, tmp_path: Path) -> None:
    words = "--shape 2,4,5,3 --kv-heads 2 --gqa --dtype float64 --mask 2,1,5,5 --mask-gradient"
    (wording,) = parse(f"{words} --scale 0.7")
    problem = wording.problem(Device("cpu", 0))
    made = Values(problem, str(tmp_path), 0)
    inputs = {
        file: np.fromfile(path, "float64").reshape(
            made.grad_out.shape if file == "grad_out" else getattr(problem, file).shape
        )
        for file, path in made.files.items()
    }
    inputs["mask"] = np.where(np.isinf(inputs["mask"]), -3.0, inputs["mask"])
    gradient = exact.right(problem, inputs)[name].exact

    place, step = tuple(size // 2 for size in gradient.shape), 1e-6
    sides = []
    for sign in (1, -1):
        moved = {**inputs, name: inputs[name].copy()}
        moved[name][place] += sign * step
        sides.append(float((exact.right(problem, moved)[""].exact * inputs["grad_out"]).sum()))
    assert gradient[place] == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6)


def test_the_result_s_gradient_lies_in_memory_as_the_query(tmp_path: Path) -> None:
    made = values(f"{SHAPE}--layout bshd --value-dim 5 --backward", tmp_path)

    assert made.grad_out.shape == (2, 3, 9, 5)
    assert made.grad_out.strides == (135, 5, 15, 1)


def test_a_gradient_that_is_missing_or_short_is_named(tmp_path: Path) -> None:
    made = values(f"{SHAPE}--backward", tmp_path)
    path = tmp_path / "result.bin"
    made.right[""].exact.astype("float32").tofile(path)

    with pytest.raises(ValueError, match="the gradient of query is missing"):
        made.judge_files(str(path), 2.0)
    np.zeros(3, "float32").tofile(f"{path}.query")
    with pytest.raises(ValueError, match="the gradient of query has 12 bytes; it must have 1728"):
        made.judge_files(str(path), 2.0)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("words", ["--kv-len 1", "--mask 2,3,9,1 --mask-gradient"])
def test_a_gradient_that_is_0_may_be_off_by_units_of_what_it_is_the_difference_of(
    words: str, dtype: str, tmp_path: Path
) -> None:
    made = values(f"{SHAPE}--backward --dtype {dtype} {words}", tmp_path).right
    zero = made["mask" if "mask" in words else "query"]
    told = zero.judge(rounded(zero), tolerance=0.0)

    assert np.abs(zero.exact).max() < 1e-12
    # A row's sum of grad_out * out is of some units, whatever the type.
    assert 0.5 < zero.largest_term < 100
    least = exact._ALLOWED_UNITS[dtype] * exact._UNITS[dtype] * zero.largest_term
    assert least <= told["largest_allowed"] < 4 * least


def test_in_float64_large_scores_may_cost_as_many_units(tmp_path: Path) -> None:
    small = right("--shape 1,2,40,64 --dtype float64", tmp_path)
    large = right("--shape 1,2,40,64 --dtype float64 --scale 30", tmp_path)

    assert 4 * exact._UNITS["float64"] < small.allowed < 16 * exact._UNITS["float64"]
    assert 200 * exact._UNITS["float64"] < large.allowed < 2000 * exact._UNITS["float64"]
    assert right("--shape 1,2,40,64 --scale 30", tmp_path).allowed == 4 * exact._UNITS["float32"]


def test_a_sum_over_rows_may_be_added_in_any_order(tmp_path: Path) -> None:
    # On an AMD EPYC without AVX-512 flash_cpu was off by 1.6 times what the root of the squares allowed.
    words = "--shape 3,4,33,24 --mask {} --mask-gradient"
    summed = values(words.format("1,1"), tmp_path).right["mask"]
    rows = values(words.format("3,4,33,1"), tmp_path).right["mask"]

    assert summed.largest_term > 2 * rows.largest_term * (3 * 4 * 33) ** 0.5
    assert summed.largest_term < rows.largest_term * 3 * 4 * 33
    wrong = np.full((1, 1), 1e-3, "float32")
    assert summed.judge(wrong, 2.0)["largest_absolute"] > summed.judge(wrong, 2.0)["largest_allowed"]


@pytest.mark.parametrize(
    ("words", "compared"),
    [
        ("--shape 3,4,9,8 --causal", "2 of 12 heads"),
        ("--shape 2,8,9,8 --kv-heads 2 --gqa --backward", "4 of 16 heads"),
        ("--shape 2,8,9,8 --mask float:2,1,1,9 --layout bshd", "2 of 16 heads"),
        ("--shape 2,3,4,9,8 --mask 9,9", "2 of 24 heads"),
    ],
)
def test_of_a_large_problem_on_a_gpu_some_heads_are_compared(
    words: str, compared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wording,) = parse(words)
    place = Device("cuda", 0, capability="9.0")
    whole = Values(wording.problem(place), str(tmp_path), 0)
    count = 1 if "--gqa" in words else 2
    limit = problem_size.flops(wording.problem(place)) * count // int(compared.split()[2])
    limit *= 4 if "--gqa" in words else 1
    monkeypatch.setattr(problem_size, "_MOST_FLOPS", limit)
    part = Values(wording.problem(place), str(tmp_path), 0)

    assert problem_size.sample_text(wording.problem(place), part.sample).startswith(compared)
    assert part.sample is not None and whole.sample is None
    path = str(tmp_path / "result.bin")
    for name, array in whole.right.items():
        array.exact.astype("float32").tofile(f"{path}.{name}" if name else path)
    for name, judged in part.judge_files(path, 2.0).items():
        assert judged["largest_absolute"] < 1e-6, name
    # The last head is among them, and an error there is found where it is.
    wrong = whole.right[""].exact.astype("float32")
    wrong.reshape(-1, *wrong.shape[-2:])[-1, 5, 3] += 1
    wrong.tofile(path)
    told = part.judge_files(path, 2.0)[""]
    assert told["worst"] == [size - 1 for size in wrong.shape[:-2]] + [5, 3]
    assert told["largest_absolute"] == pytest.approx(1, rel=1e-3)
    assert problem_size.sample(wording.problem(Device("cpu", 0))) is None
