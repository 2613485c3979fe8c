"""scaled_dot_product_attention as it is called: kinds of tensors, checks, switches, and who runs."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import mlbackends
from mlbackends.base.errors import MlBackendsError, NoBackend
from mlbackends.sdpa.switches import SDPBackend

attend: Any = mlbackends.scaled_dot_product_attention
RANDOM = np.random.default_rng(0)
Q = RANDOM.standard_normal((2, 4, 5, 8)).astype("float32")
KV = RANDOM.standard_normal((2, 4, 7, 8)).astype("float32")


def formula(query: Any, key: Any, value: Any, mask: Any = 0.0, scale: float = 8**-0.5) -> Any:
    """Write attention down once more, in float64 and without any care."""
    scores = query.astype("float64") @ key.astype("float64").swapaxes(-1, -2) * scale + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value.astype("float64")


def test_it_is_torchs_signature_with_options_of_ours_behind() -> None:
    torchs, _, ours = str(inspect.signature(attend)).partition(", window: ")
    assert torchs == (
        "(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,"
        " is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,"
        " return_logsumexp: bool = False, seed: int | None = None"
    )
    assert ours == (
        "tuple[int, int] | None = None, lower_right: bool = False, softcap: float = 0.0,"
        " sinks: Any = None, alibi_slopes: Any = None, query_lengths: Any = None, key_lengths: Any = None,"
        " page_table: Any = None) -> Any"
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_an_array_gives_an_array_of_its_type(dtype: str) -> None:
    query, key = Q.astype(dtype), KV.astype(dtype)

    seen = attend(query, key, key)

    assert (type(seen), seen.dtype.name, seen.shape) == (np.ndarray, dtype, (2, 4, 5, 8))
    near = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3}[dtype]
    assert np.allclose(seen, formula(query, key, key), rtol=near, atol=near)


def test_a_buffer_gives_a_buffer() -> None:
    flat: Any = np.ascontiguousarray(Q[0, 0])
    seen = attend(memoryview(flat), memoryview(flat), memoryview(flat))

    assert (type(seen), seen.format, seen.shape) == (memoryview, "f", (5, 8))
    assert np.array_equal(np.asarray(seen), attend(flat, flat, flat))


def test_an_array_in_the_other_byte_order_is_read() -> None:
    swapped = Q.astype(Q.dtype.newbyteorder())

    assert np.array_equal(attend(swapped, swapped, swapped), attend(Q, Q, Q))


def test_what_lies_in_memory_otherwise_gives_the_same() -> None:
    apart = np.asfortranarray(Q)
    read_only = Q.copy()
    read_only.flags.writeable = False

    assert np.allclose(attend(apart, apart[::-1][::-1], read_only), attend(Q, Q, Q), atol=1e-6)


def test_masks_of_either_kind_and_biases_mean_what_they_say() -> None:
    seen = np.tril(np.ones((5, 7), bool))
    added = np.where(seen, 0, -np.inf)

    wanted = formula(Q, KV, KV, added)

    for mask in (seen, added.astype("float32"), mlbackends.causal_upper_left(5, 7)):
        assert np.allclose(attend(Q, KV, KV, mask), wanted, atol=1e-6)
    assert np.allclose(attend(Q, KV, KV, is_causal=True), wanted, atol=1e-6)
    lower = np.where(mlbackends.causal_lower_right(5, 7).rows(), 0, -np.inf)
    bias = mlbackends.causal_lower_right(5, 7)
    assert np.allclose(attend(Q, KV, KV, bias), formula(Q, KV, KV, lower), atol=1e-6)


def test_the_mask_of_a_masked_array_is_ignored() -> None:
    hidden = np.ma.masked_array(Q, mask=np.ones(Q.shape, bool))
    assert np.array_equal(np.asarray(attend(hidden, KV, KV)), attend(Q, KV, KV))


def test_grouped_heads_are_heads_repeated() -> None:
    few = KV[:, :2]

    seen = attend(Q, few, few, enable_gqa=True)

    assert np.allclose(seen, attend(Q, few.repeat(2, 1), few.repeat(2, 1)), atol=1e-6)


def test_what_has_nothing_to_do_is_zeros_with_everything_off() -> None:
    with mlbackends.sdpa_kernel([]):
        assert attend(Q[:, :, :0], KV, KV).shape == (2, 4, 0, 8)
        assert not attend(Q, KV[:, :, :0], KV[:, :, :0]).any()
        integers = np.ones((2, 0, 8), int)
        assert attend(integers, integers, integers, None, 7.0, True).dtype == int


def test_all_off_is_told_as_torch_tells_it_with_the_switches() -> None:
    with (
        mlbackends.sdpa_kernel([]),
        pytest.raises(RuntimeError, match="No viable backend") as caught,
    ):
        attend(Q, KV, KV)
    assert isinstance(caught.value, NoBackend)
    assert "cuda.math_sdp" in str(caught.value)
    assert "switch cuda.math_sdp on" in caught.value.hint


def test_nobody_who_can_is_told_with_every_reason() -> None:
    integers = np.ones((1, 1, 2, 2), int)
    with pytest.raises(NoBackend, match="No available kernel") as caught:
        attend(integers, integers, integers)
    assert {"wrong-dtype"} <= {reason.code for reason in caught.value.reasons}
    assert "math: the dtype is int64" in str(caught.value)


def test_what_no_backend_could_answer_is_torchs_exception_with_our_words() -> None:
    with pytest.raises(RuntimeError, match="same last dimension") as caught:
        attend(Q, KV[..., :7], KV)
    assert isinstance(caught.value, NoBackend)
    assert isinstance(caught.value, MlBackendsError)
    assert [reason.code for reason in caught.value.reasons] == ["invalid-problem"]
    with pytest.raises(RuntimeError, match="batches and heads") as forgotten:
        attend(Q, KV[:, :2], KV[:, :2])
    assert "enable_gqa" in getattr(forgotten.value, "hint", "")


def test_a_switch_reaches_the_arithmetic() -> None:
    query = (Q * 3).astype("float16")
    mlbackends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with mlbackends.sdpa_kernel(SDPBackend.MATH):  # no other one rounds between its steps
            rounded = attend(query, query, query)
        with mlbackends.sdpa_kernel(SDPBackend.MATH):
            mlbackends.cuda.allow_fp16_bf16_reduction_math_sdp(False)
            plain = attend(query, query, query)
    finally:
        mlbackends.cuda.allow_fp16_bf16_reduction_math_sdp(False)

    wanted = formula(query, query, query)
    assert np.abs(rounded - wanted).max() > np.abs(plain - wanted).max()
    assert np.allclose(rounded, wanted, atol=0.02)


def test_only_the_formula_can_be_asked_for() -> None:
    with mlbackends.sdpa_kernel(SDPBackend.MATH):
        assert np.allclose(attend(Q, KV, KV), formula(Q, KV, KV), atol=1e-6)
