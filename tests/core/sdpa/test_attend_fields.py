"""What scaled_dot_product_attention takes beside torch's arguments: windows, caps, sinks, lengths, pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlbackends
from mlbackends.base.errors import NoBackend
from mlbackends.sdpa.bias import causal_lower_right

attend: Any = mlbackends.scaled_dot_product_attention
backward: Any = mlbackends.scaled_dot_product_attention_backward
RANDOM = np.random.default_rng(0)
Q = RANDOM.standard_normal((2, 4, 5, 8))
K, V = RANDOM.standard_normal((2, 2, 4, 7, 8))
SINKS = RANDOM.standard_normal(4)
BAND = np.abs(np.arange(5)[:, None] + 2 - np.arange(7)) <= 1


def test_a_window_is_the_mask_of_its_band() -> None:
    seen = attend(Q, K, V, window=(1, 1), lower_right=True)

    assert np.allclose(seen, attend(Q, K, V, BAND))


def test_lower_right_is_what_a_causal_bias_says() -> None:
    one = attend(Q, K, V, is_causal=True, lower_right=True)

    assert np.allclose(one, attend(Q, K, V, causal_lower_right(5, 7)))


def test_a_sink_is_a_key_without_a_value() -> None:
    query, key = (np.pad(tensor, [*[(0, 0)] * 3, (0, 1)]) for tensor in (Q, K))
    query[..., -1] = 8**0.5  # whose score is the sink
    key = np.concatenate([key, np.zeros((2, 4, 1, 9))], 2)
    key[:, :, -1, -1] = SINKS
    value = np.concatenate([V, np.zeros((2, 4, 1, 8))], 2)

    wanted = attend(query, key, value, scale=8**-0.5, return_logsumexp=True)
    for tensor, other in zip(attend(Q, K, V, sinks=SINKS, return_logsumexp=True), wanted, strict=True):
        assert np.allclose(tensor, other)


def test_slopes_lower_scores_by_the_distance_of_their_keys() -> None:
    slopes = np.array([0.5, 0.0, 2.0, -1.0])
    distance = np.abs(np.arange(5)[:, None] + 2 - np.arange(7))

    seen = attend(Q, K, V, alibi_slopes=slopes, lower_right=True)

    assert np.allclose(seen, attend(Q, K, V, -slopes[:, None, None] * distance))


def test_packed_sequences_see_themselves_alone() -> None:
    lengths = {"query_lengths": [2, 3], "key_lengths": np.array([3, 4], "int32")}

    seen = attend(Q[:1], K[:1], V[:1], **lengths, is_causal=True, lower_right=True)

    apart = [
        attend(Q[:1, :, rows], K[:1, :, keys], V[:1, :, keys], causal_lower_right(*size))
        for rows, keys, size in ((slice(2), slice(3), (2, 3)), (slice(2, 5), slice(3, 7), (3, 4)))
    ]
    assert np.allclose(seen, np.concatenate(apart, 2))


def test_keys_in_pages_are_found_by_the_table() -> None:
    pages = RANDOM.standard_normal((5, 4, 3, 8))
    table = np.array([[4, 0, 1], [2, 3, 3]], "int32")
    more: dict[str, Any] = {"page_table": table, "key_lengths": (7, 3), "window": (-1, 2)}

    seen = attend(Q, pages, pages, **more)

    for number, keys in enumerate(more["key_lengths"]):
        own = pages[table[number]].swapaxes(0, 1).reshape(1, 4, 9, 8)[:, :, :keys]
        assert np.allclose(seen[number], attend(Q[number : number + 1], own, own, window=(-1, 2)))


def test_keys_are_not_missed_where_there_is_no_page() -> None:
    empty = np.zeros((0, 4, 3, 8))

    assert not attend(Q, empty, empty, page_table=PAGES["page_table"], key_lengths=(0, 0)).any()
    with pytest.raises(IndexError, match="page_table has page 0 for sequence 1; there are 0"):
        attend(Q, empty, empty, page_table=PAGES["page_table"], key_lengths=(0, 2))


def test_no_row_is_no_row() -> None:
    none, lengths = Q[:1, :, :0], {"query_lengths": (0, 0), "key_lengths": (3, 4)}

    assert attend(none, K[:1], V[:1], **lengths).shape == (1, 4, 0, 8)
    with pytest.raises(NoBackend, match="query has the shape"):
        attend(none, K[:1], V[:1], query_lengths=(0, 1), key_lengths=(3, 4))


def test_the_backward_call_takes_what_the_forward_call_took() -> None:
    more: dict[str, Any] = {"window": (3, 0), "softcap": 2.0, "sinks": SINKS, "alibi_slopes": SINKS}
    grad_out = RANDOM.standard_normal(Q.shape)
    out, sums = attend(Q, K, V, **more, return_logsumexp=True)

    found = backward(grad_out, Q, K, V, out, sums, **more)

    step = RANDOM.standard_normal(4) * 1e-6
    more["sinks"] = SINKS + step
    above = attend(Q, K, V, **more)
    more["sinks"] = SINKS - step
    slope = ((above - attend(Q, K, V, **more)) * grad_out).sum() / 2
    assert found.sinks @ step == pytest.approx(slope, rel=1e-5)
    assert found.mask is None


PAGES: dict[str, Any] = {"page_table": np.zeros((2, 2), "int32"), "key_lengths": (7, 3)}


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"window": 3}, TypeError, "argument 'window' must be tuple of ints, not int"),
        ({"window": (1, 2, 3)}, TypeError, "argument 'window' must be tuple of 2 ints, not tuple"),
        ({"window": (1.5, 0)}, TypeError, "argument 'window' must be tuple of ints"),
        ({"window": (-3, 0)}, NoBackend, r"window is \(-3, 0\)"),
        ({"softcap": "30"}, TypeError, "argument 'softcap' must be float, not str"),
        ({"softcap": -1.0}, NoBackend, "must be 0 or greater, but got -1.0"),
        ({"lower_right": 1}, TypeError, "argument 'lower_right' must be bool, not int"),
        ({"lower_right": True}, NoBackend, "is_causal is False"),
        ({"sinks": [0.0] * 4}, TypeError, "argument 'sinks' must be Tensor, not list"),
        ({"sinks": SINKS[:3]}, NoBackend, r"\[4\]; got \[3\]"),
        ({"alibi_slopes": SINKS[:3]}, NoBackend, r"alibi_slopes must be one for each of 4 heads"),
        ({"query_lengths": (2, 3)}, NoBackend, "query_lengths is given without key_lengths"),
        ({"key_lengths": "73"}, TypeError, "argument 'key_lengths' must be tuple of ints, not str"),
        ({**PAGES, "page_table": [[0]]}, TypeError, "argument 'page_table' must be Tensor"),
        ({**PAGES, "key_lengths": (7, 99)}, NoBackend, "a sequence has 99 keys"),
        ({**PAGES, "attn_mask": causal_lower_right(5, 7)}, ValueError, "a CausalBias has one size"),
    ],
)
def test_a_wrong_argument_is_named(more: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        attend(Q, K, V, **more)


def test_a_backend_that_lacks_one_says_so_by_name() -> None:
    with (
        mlbackends.sdpa_kernel(mlbackends.SDPBackend.EFFICIENT_ATTENTION),
        pytest.raises(NoBackend) as caught,
    ):
        attend(Q, K, V, **PAGES)

    assert "supported: float16, bfloat16, float32; paged keys are not supported; key has pages of 7" in str(
        caught.value
    )
