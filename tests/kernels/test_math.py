"""The plain formula against its definition, one number after the other, and whose tensors it reads."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlbackends
from mlbackends.base import registry
from mlbackends.base.errors import MlBackendsError, NoBackend
from mlbackends.base.installed import install_command
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa.describe import describe
from mlbackends_kernels.tensors import arithmetic, interchange

if TYPE_CHECKING:
    from collections.abc import Callable

backend = registry.load("mlbackends_kernels", "math").Math()


def told(query: Any, key: Any, value: Any, mask: Any = None, **more: Any) -> AttentionProblem:
    return AttentionProblem(
        query=describe(query),
        key=describe(key),
        value=describe(value),
        mask=None if mask is None else describe(mask),
        **more,
    )


def run(query: Any, key: Any, value: Any, mask: Any = None, **more: Any) -> Any:
    return backend.run(told(query, key, value, mask, **more), query, key, value, mask)


def test_a_row_whose_scores_all_overflow_is_nan() -> None:
    x = np.full((1, 1, 3, 4), 1e20, "float32")
    mask = np.array([[True, False, False], [False] * 3, [True] * 3])

    assert np.isnan(run(x, -x, x / x)).all()
    assert np.isnan(run(x, -x, x / x, is_causal=True)).all()
    for tensor in (mask, np.where(mask, 0, -np.inf).astype("float32")):
        assert np.isnan(run(x, -x, x / x, tensor)[0, 0]).all(-1).tolist() == [True, False, True]
        assert not run(x, -x, x / x, tensor)[0, 0, 1].any()


def test_large_scores_do_not_overflow() -> None:
    x = np.full((1, 2, 64), 3e4, "float16")
    wide = np.full((1, 2, 64), 1e18, "float32")

    assert np.array_equal(run(x, x, x), x)
    assert np.array_equal(run(wide, wide, wide), wide)


def test_float64_inside_is_nearer_than_the_type_itself() -> None:
    random = np.random.default_rng(3)
    x = random.standard_normal((1, 64, 64)).astype("float32")
    wanted = run(*[x.astype("f8")] * 3)

    inside = np.abs(run(x, x, x, inner_dtype="float64") - wanted).max()

    assert inside < np.abs(run(x, x, x) - wanted).max()
    assert inside <= np.spacing(np.float32(np.abs(wanted).max()))


def test_the_inputs_stay_as_they_are() -> None:
    tensors = [np.random.default_rng(n).standard_normal((2, 3, 4)) for n in range(3)]
    before = [x.copy() for x in tensors]

    out = run(tensors[0], tensors[1], tensors[2], np.zeros((3, 3)), scale=2.0)

    assert all(np.array_equal(x, y) for x, y in zip(tensors, before, strict=True))
    assert not any(np.shares_memory(out, x) for x in tensors)


def as_memory(tensor: Any) -> memoryview:
    return memoryview(tensor)


# ---- tensors of others --------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.transpose(1, 0, 2),
        lambda x: x[::2, ::-1],
        lambda x: np.broadcast_to(x[:1], (5, 4, 6)),
        as_memory,
    ],
)
def test_an_array_or_buffer_is_read_without_a_copy(view: Callable[[Any], Any]) -> None:
    x = np.arange(72, dtype="float32").reshape(3, 4, 6)

    assert np.shares_memory(interchange.as_array(view(x)), x)


class SpeaksDlpack:
    """A tensor of a library that offers DLPack, and a way to make one of it from an array."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        class Namespace:
            asarray = SpeaksDlpack

        return Namespace


def test_a_tensor_that_speaks_dlpack_gives_one_of_its_kind() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
    tensor = SpeaksDlpack(x)

    assert np.shares_memory(interchange.as_array(tensor), x)
    seen = run(tensor, tensor, tensor)
    assert isinstance(seen, SpeaksDlpack)
    assert np.array_equal(seen.array, run(x, x, x))


def test_zeros_are_of_the_originals_kind() -> None:
    x = np.ones((2, 3), "float16")

    assert interchange.zeros_like(x, (4, 0)).dtype == np.float16
    assert isinstance(interchange.zeros_like(as_memory(x), (4, 1)), memoryview)
    assert isinstance(interchange.zeros_like(SpeaksDlpack(x), (4, 1)), SpeaksDlpack)


@given(st.integers(0, 0xFFFF))
def test_every_pattern_of_bfloat16_comes_back(pattern: int) -> None:
    bits = np.array([pattern], np.uint16)
    number = arithmetic.bfloat16_to_float32(bits)

    back = arithmetic.bfloat16_from_float32(number)

    assert np.isnan(number).item() or back.item() == pattern
    assert np.isnan(arithmetic.bfloat16_to_float32(back)).item() == np.isnan(number).item()


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import mlbackends
from mlbackends_kernels.tensors import interchange
from mlbackends.base.errors import MlBackendsError
x = memoryview(bytes(64)).cast("f", (4, 4))
def say(function, *tensors):
    try:
        function(*tensors)
    except MlBackendsError as error:
        print(str(error).replace("\\n", " "), error.hint, sep=" | ")
say(mlbackends.scaled_dot_product_attention, x, x, x)
say(interchange.as_array, x)
"""


def test_without_numpy_it_says_what_is_missing() -> None:
    import subprocess

    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True, check=True)
    chosen, read = done.stdout.splitlines()
    assert "math: numpy is not installed" in chosen
    assert "numpy is needed and cannot be imported" in read
    assert "numpy" in install_command("kernels") and read.endswith(f"| {install_command('kernels')}")
    assert issubclass(NoBackend, MlBackendsError)


def test_numpy_s_seed_repeats_what_is_dropped() -> None:
    x = np.random.default_rng(0).standard_normal((2, 8, 8)).astype("f4")

    def dropped() -> Any:
        return mlbackends.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    kept = np.random.get_state()  # noqa: NPY002  whose seed is what programs set
    try:
        np.random.seed(3)  # noqa: NPY002
        first, second = dropped(), dropped()
        np.random.seed(3)  # noqa: NPY002
        assert np.array_equal(dropped(), first)
        assert np.array_equal(dropped(), second)
        assert not np.array_equal(first, second)
        before = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
        mlbackends.scaled_dot_product_attention(x, x, x)
        assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], before)  # noqa: NPY002
    finally:
        np.random.set_state(kept)  # noqa: NPY002


def test_a_seed_of_the_problem_comes_first_and_draws_nothing() -> None:
    x = np.ones((1, 4, 4), "f4")
    spec = TensorSpec(x.shape, "float32")
    seeded = AttentionProblem(query=spec, key=spec, value=spec, dropout=0.5, seed=7)
    before = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
    results = [backend.run(seeded, x, x, x) for _ in range(2)]
    assert np.array_equal(*results)
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], before)  # noqa: NPY002


def test_a_problem_without_a_seed_draws_one_each_time() -> None:
    x = np.ones((1, 8, 8), "f4")
    first, second = (run(x, x, x, dropout=0.5) for _ in range(2))
    assert not np.array_equal(first, second)
